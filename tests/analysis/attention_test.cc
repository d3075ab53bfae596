// Attention's contractions counted in other ways, of fused and of composed attention.
#include "tally/analysis/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/ops/attention.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"

namespace tally {
namespace {

struct Case {
  int64_t batch = 1, heads = 12, kv_heads = 12, length = 64, width = 64;
  AttentionOptions options;
};

// Attention of q, k and v that need gradients, and its backward.
AttentionReport Attend(const Case& c, bool fused) {
  const auto input = [&](int64_t heads) {
    return Tensor::Empty({DType::kF32, {c.batch, c.length, heads, c.width}}, kMeta);
  };
  const Tensor q = input(c.heads), k = input(c.kv_heads), v = input(c.kv_heads);
  Tape tape;
  tape.Watch({q, k, v});
  const Tensor y =
      fused ? FusedAttention(q, k, v, c.options) : ComposedAttention(q, k, v, c.options);
  tape.Gradient(Sum(y), {q, k, v});
  const Graph graph = tape.Finish();
  EXPECT_EQ(Verify(graph), absl::OkStatus());
  const SplitProof proof = ProveSplit(graph);
  EXPECT_TRUE(proof.holds) << testing::PrintToString(proof.failures);
  EXPECT_EQ(proof.activation_forward, proof.forward);
  const AttentionReport report = AnalyzeAttention(graph, proof);
  EXPECT_EQ(report.forward.nominal, proof.activation_forward);
  EXPECT_EQ(report.backward.nominal, proof.activation_backward);
  return report;
}

// Pairs that a mask shows, one by one.
int64_t Visible(const Case& c) {
  std::vector<int64_t> document;
  for (int64_t d = 0; d < c.options.documents.size(); ++d) {
    document.insert(document.end(), c.options.documents[d], d);
  }
  document.resize(c.length, -1);
  int64_t pairs = 0;
  for (int64_t i = 0; i < c.length; ++i) {
    for (int64_t j = 0; j < c.length; ++j) {
      const bool sees = document[i] == document[j] && (!c.options.causal || j <= i) &&
                        (c.options.window == 0 || std::abs(i - j) < c.options.window);
      pairs += sees;
    }
  }
  return pairs;
}

// Two products forward, each 2·width a pair.
int64_t Flops(const Case& c, int64_t pairs) { return 2 * 2 * c.width * pairs * c.batch * c.heads; }

TEST(Attention, CausalCountsFullHalfAndExact) {
  Case c;
  c.options.causal = true;
  for (const bool fused : {false, true}) {
    const AttentionReport report = Attend(c, fused);
    EXPECT_EQ(report.forward.nominal, 12'582'912);
    EXPECT_EQ(report.forward.other.full, 12'582'912);
    EXPECT_EQ(report.forward.other.causal_half, 6'291'456);
    EXPECT_EQ(report.forward.other.causal_exact, 6'389'760);  // 64·65/2 = 2,080 pairs
    EXPECT_EQ(report.backward.nominal, 2 * 12'582'912);
    EXPECT_EQ(report.backward.other.causal_exact, 2 * 6'389'760);
    EXPECT_EQ(report.total().other.causal_half, 3 * 6'291'456);
  }
}

TEST(Attention, WithoutAMaskEveryCountIsTheSame) {
  Case c{.batch = 2, .heads = 5, .kv_heads = 5, .length = 9, .width = 4};
  for (const bool fused : {false, true}) {
    const AttentionReport report = Attend(c, fused);
    EXPECT_EQ(report.forward.nominal, 12'960);
    EXPECT_EQ(report.forward.other.full, 12'960);
    EXPECT_EQ(report.forward.other.causal_half, 12'960);
    EXPECT_EQ(report.forward.other.causal_exact, 12'960);
  }
}

TEST(Attention, GroupedQueriesCountQueryHeads) {
  const Case c{.batch = 2, .heads = 8, .kv_heads = 2, .length = 16, .width = 8};
  for (const bool fused : {false, true}) EXPECT_EQ(Attend(c, fused).forward.nominal, 131'072);
}

TEST(Attention, CompositionsRunWhatWindowsHide) {
  Case c{.heads = 3, .kv_heads = 1, .length = 40, .width = 8};
  c.options.causal = true;
  c.options.window = 7;
  const AttentionReport fused = Attend(c, true), composed = Attend(c, false);
  EXPECT_EQ(fused.forward.nominal, Flops(c, Visible(c)));
  EXPECT_EQ(composed.forward.nominal, Flops(c, 40 * 40));
  for (const AttentionReport* report : {&fused, &composed}) {
    EXPECT_EQ(report->forward.other.full, Flops(c, 40 * 40));
    EXPECT_EQ(report->forward.other.causal_exact, Flops(c, Visible(c)));
  }
  EXPECT_EQ(composed.forward.other.executed, composed.forward.nominal);
  EXPECT_EQ(composed.backward.other.recomputed, 0);
}

TEST(Attention, PackedDocumentsCountTheirOwnSquares) {
  Case c{.batch = 2, .heads = 2, .kv_heads = 2, .length = 20, .width = 4};
  c.options.causal = true;
  c.options.documents = Lengths{3, 12, 5};
  const int64_t squares = 3 * 3 + 12 * 12 + 5 * 5;
  const AttentionReport fused = Attend(c, true);
  EXPECT_EQ(fused.forward.nominal, Flops(c, squares));
  EXPECT_EQ(fused.forward.other.full, Flops(c, 20 * 20));
  EXPECT_EQ(fused.forward.other.causal_half, Flops(c, squares) / 2);
  EXPECT_EQ(fused.forward.other.causal_exact, Flops(c, Visible(c)));
  EXPECT_EQ(Attend(c, false).forward.other.causal_exact, Flops(c, Visible(c)));
}

TEST(Attention, FusedBackwardNamesTheScoresItMakesAgain) {
  Case c{.heads = 2, .kv_heads = 2, .length = 256, .width = 16};
  const AttentionReport report = Attend(c, true);
  EXPECT_GT(report.backward.other.recomputed, 0);
  // One product of the forward's two, every pair.
  EXPECT_EQ(report.backward.other.recomputed, report.forward.nominal / 2);
  EXPECT_EQ(report.forward.other.recomputed, 0);
}

// Queries that are learned, as of a pooling head, and a learned memory.
TEST(Attention, OfAParameterIsProvenInEveryForm) {
  for (const bool fused : {false, true}) {
    for (int which = 0; which < 3; ++which) {
      std::vector<Tensor> qkv(3);
      for (Tensor& t : qkv) t = Tensor::Empty({DType::kF32, {2, 6, 4, 8}}, kMeta);
      Declare(qkv[which], Origin::kParameter, "learned");
      Tape tape;
      tape.Watch(qkv[which]);
      const Tensor y = fused ? FusedAttention(qkv[0], qkv[1], qkv[2], {.causal = true})
                             : ComposedAttention(qkv[0], qkv[1], qkv[2], {.causal = true});
      tape.Gradient(Sum(y), qkv[which]);
      const Graph graph = tape.Finish();
      const SplitProof proof = ProveSplit(graph);
      EXPECT_TRUE(proof.holds) << fused << which << testing::PrintToString(proof.failures);
      EXPECT_EQ(proof.forward, 2 * 2 * 8 * 6 * 6 * 2 * 4);
    }
  }
}

TEST(Attention, ARouterOrAClassifierIsNone) {
  const Tensor x = Tensor::Empty({DType::kF32, {6, 4}}, kMeta);
  const Tensor w = Tensor::Empty({DType::kF32, {4, 3}}, kMeta);
  Declare(w, Origin::kParameter, "router");
  Tape tape;
  tape.Watch(w);
  const Tensor p = Softmax(MatMul(x, w));
  tape.Gradient(Sum(MatMul(p, Tensor::Empty({DType::kF32, {3, 2}}, kMeta))), w);
  const Graph graph = tape.Finish();
  EXPECT_TRUE(AnalyzeAttention(graph, ProveSplit(graph)).nodes.empty());
}

}  // namespace
}  // namespace tally
