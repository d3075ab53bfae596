// What fused attention records: bytes, and FLOPs by every way of counting.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tally/ops/ops.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/sdpa_settings.h"

namespace tally {
namespace {

// Forward and backward of one attention, on meta.
Graph Recorded(const Sizes& n, AttentionFn attention, const AttentionOptions& options) {
  Tape tape;
  const Tensor q = Tensor::Empty({DType::kF32, {n.batch, n.queries, n.heads, n.d}}, kMeta);
  const Tensor k = Tensor::Empty({DType::kF32, {n.batch, n.keys, n.kv_heads, n.d}}, kMeta);
  const Tensor v = Tensor::Empty({DType::kF32, {n.batch, n.keys, n.kv_heads, n.e}}, kMeta);
  tape.Watch({q, k, v});
  const Tensor y = attention(q, k, v, options);
  tape.Gradient(Sum(y), {q, k, v});
  return tape.Finish();
}

TEST(Sdpa, KeepsAndPeaksAtBytesLinearInLength) {
  int64_t peak[3];
  for (int i = 0; i < 3; ++i) {
    const int64_t t = 512 << i;
    const Graph graph = Recorded({1, t, t, 12, 12, 64, 64}, FusedAttention, {.causal = true});
    // q, k, v and out, and one number a row: 4 T 12 64 + 12 T floats.
    EXPECT_SAVED_BYTES(graph, 4 * (4 * t * 12 * 64 + 12 * t));
    peak[i] = AnalyzeMemory(graph).peak_bytes;
    // The gradient's inputs and outputs: q k v out dy dq dk dv, lse, and one working set.
    EXPECT_GT(peak[i], 4 * (8 * t * 12 * 64 + 12 * t));
  }
  EXPECT_EQ(peak[2] - peak[1], 2 * (peak[1] - peak[0]));
  const Graph composed =
      Recorded({1, 2048, 2048, 12, 12, 64, 64}, ComposedAttention, {.causal = true});
  EXPECT_GT(AnalyzeMemory(composed).peak_bytes, 4 * 12 * 2048 * 2048);
}

struct Products {
  Count forward = 0, backward = 0;
};
Products ProductsOf(const Graph& graph) {
  Products sum;
  for (const Node& node : graph.nodes) {
    (node.phase == Phase::kForward ? sum.forward : sum.backward) += CostOf(graph, node).matmul;
  }
  return sum;
}
MaskedCounts MaskedOf(const OpDef& op, const std::vector<TensorSpec>& in, const SdpaAttrs& a) {
  const Specs out = ValueOrThrow(InferSpecs(op, in, a));
  absl::InlinedVector<const TensorSpec*, 8> ins, outs;
  for (const TensorSpec& spec : in) ins.push_back(&spec);
  for (const TensorSpec& spec : out) outs.push_back(&spec);
  const Attrs attrs = a;
  return op.masked({op, SpecRefs(ins), SpecRefs(outs), attrs});
}
std::vector<TensorSpec> ForwardSpecs(const Sizes& n) {
  return {{DType::kF32, {n.batch, n.queries, n.heads, n.d}},
          {DType::kF32, {n.batch, n.keys, n.kv_heads, n.d}},
          {DType::kF32, {n.batch, n.keys, n.kv_heads, n.e}}};
}
std::vector<TensorSpec> BackwardSpecs(const Sizes& n) {
  const TensorSpec out{DType::kF32, {n.batch, n.queries, n.heads, n.e}};
  std::vector<TensorSpec> specs = ForwardSpecs(n);
  specs.insert(specs.begin(), out);
  specs.push_back(out);
  specs.push_back({DType::kF32, {n.batch, n.heads, n.queries}});
  return specs;
}

TEST(Sdpa, CountsTheWholeHalfAndExactSquare) {
  // Two products of B=1 H=12 S=64 D=64: 2 · 2 · 12 · 64² · 64; pairs 64 · 65 / 2 = 2080.
  const Sizes n{1, 64, 64, 12, 12, 64, 64};
  const SdpaAttrs causal{.scale = 0.125, .causal = true};
  EXPECT_EQ(PriceOf(kSdpa, ForwardSpecs(n), causal)->matmul, 12'582'912);
  const MaskedCounts counts = MaskedOf(kSdpa, ForwardSpecs(n), causal);
  EXPECT_EQ(counts.full, 12'582'912);
  EXPECT_EQ(counts.causal_half, 6'291'456);
  EXPECT_EQ(counts.causal_exact, 6'389'760);
  EXPECT_EQ(counts.causal_exact, 2 * 2 * 12 * 2080 * 64);
  EXPECT_EQ(counts.executed, 12'582'912);  // one tile
  EXPECT_EQ(counts.recomputed, 0);
  const MaskedCounts back = MaskedOf(kSdpaGrad, BackwardSpecs(n), causal);
  EXPECT_EQ(back.full, 2 * 12'582'912);
  EXPECT_EQ(back.recomputed, 6'291'456);  // one product: the scores
  EXPECT_EQ(back.executed, 2 * 12'582'912 + 6'291'456);
}

TEST(Sdpa, CountsQueryHeadsAndCountsOnce) {
  // B=2 Hq=8 Hkv=2 S=16 D=8: 2 · 2 · 2 · 8 · 16² · 8.
  const Products grouped = ProductsOf(Recorded({2, 16, 16, 8, 2, 8, 8}, FusedAttention, {}));
  EXPECT_EQ(grouped.forward, 131'072);
  EXPECT_EQ(grouped.backward, 2 * 131'072);
  // B=2 H=5 S=9 D=4: 2 · 2 · 2 · 5 · 9² · 4, once.
  EXPECT_EQ(ProductsOf(Recorded({2, 9, 9, 5, 5, 4, 4}, FusedAttention, {})).forward, 12'960);
}

TEST(Sdpa, CountsTheProductsOfTheComposition) {
  for (const Setting& setting : Settings()) {
    if (setting.options.window != 0 || !setting.options.documents.empty()) continue;
    const Products fused = ProductsOf(Recorded(setting.n, FusedAttention, setting.options));
    const Products composed = ProductsOf(Recorded(setting.n, ComposedAttention, setting.options));
    EXPECT_EQ(fused.forward, composed.forward) << setting.name;
    EXPECT_EQ(fused.backward, composed.backward) << setting.name;
  }
}

TEST(Sdpa, CountsTilesThatRun) {
  // T = 200 in tiles of 64: 64 queries see up to 64, 128, 192 keys, the last 8 see 200.
  const Sizes n{3, 200, 200, 2, 2, 16, 48};
  const Count pairs = 3 * 2 * (64 * 64 + 64 * 128 + 64 * 192 + 8 * 200);
  const MaskedCounts causal = MaskedOf(kSdpaGrad, BackwardSpecs(n), {.causal = true});
  EXPECT_EQ(causal.recomputed, pairs * 2 * 16);
  EXPECT_EQ(causal.executed, pairs * (2 * 16 + 4 * (16 + 48)));
  // Documents of 100: tiles of 64 see 64, 128 (both documents), 92 (from 100 to 192) and 100.
  const Count packed = 3 * 2 * (64 * 64 + 64 * 128 + 64 * 92 + 8 * 100);
  const MaskedCounts documents =
      MaskedOf(kSdpa, ForwardSpecs(n), {.causal = true, .documents = {100, 100}});
  EXPECT_EQ(documents.executed, packed * 2 * (16 + 48));
  // Nominal: two squares of 100.
  EXPECT_EQ(
      PriceOf(kSdpa, ForwardSpecs(n), SdpaAttrs{.causal = true, .documents = {100, 100}})->matmul,
      3 * 2 * (2 * 100 * 100) * 2 * (16 + 48));
}

// What sdpa and sdpa_grad cost beside products, by loops over counted numbers of one matrix of
// scores in which a query has `pairs[i]` nominal pairs.
Cost LoopCost(const std::vector<int64_t>& pairs, bool scaled, bool capped) {
  return CostOf([&] {
    for (const int64_t n : pairs) {
      Numbers scores(n, Counted(0.5)), weights;
      for (Counted& s : scores) {
        if (scaled) s = s * Counted(0.5);
        if (capped) s = Counted(2) * Transcendental(std::tanh(s.value));
      }
      if (n == 0) continue;
      const Counted top = MaxOf(scores);
      for (const Counted& s : scores) weights.push_back(Exp(s - top));
      const Counted sum = SumOf(weights);
      for (Counted& w : weights) w = w / sum;
      Counted lse = top + Log(sum);
      (void)lse;
    }
  });
}
Cost GradLoopCost(const std::vector<int64_t>& pairs, bool scaled, bool capped) {
  return CostOf([&] {
    for (const int64_t n : pairs) {
      const Numbers p(n, Counted(0.5)), dp(n, Counted(0.25)), t(n, Counted(0.5));
      Numbers products;
      for (int64_t j = 0; j < n; ++j) products.push_back(p[j] * dp[j]);
      const Counted sum = SumOf(products);
      for (int64_t j = 0; j < n; ++j) {
        Counted ds = p[j] * (dp[j] - sum);
        if (capped) ds = ds * (Counted(1) - t[j] * t[j]) * Counted(2);
        if (scaled) ds = ds * Counted(0.5);
      }
    }
  });
}

TEST(Sdpa, CostsWhatLoopsCount) {
  struct Row {
    SdpaAttrs attrs;
    int64_t queries, keys;
    std::vector<int64_t> pairs;  // nominal, by query
  };
  const std::vector<Row> rows = {
      {{.scale = 0.5, .causal = true}, 3, 5, {5, 5, 5}},
      {{.scale = 1}, 2, 3, {3, 3}},
      {{.scale = 0.5, .causal = true, .window = 2}, 4, 4, {1, 2, 2, 2}},
      {{.scale = 0.5, .causal = true, .window = 2}, 5, 3, {0, 0, 1, 2, 2}},
      {{.scale = 1, .window = 2}, 4, 4, {2, 3, 3, 2}},
      {{.scale = 0.5, .causal = true, .documents = {1, 3}}, 4, 4, {1, 3, 3, 3}},
      {{.scale = 0.5, .softcap = 2}, 2, 2, {2, 2}},
  };
  for (const Row& row : rows) {
    const bool capped = row.attrs.softcap != 0, scaled = row.attrs.scale != 1;
    const Sizes n{2, row.queries, row.keys, 6, 3, 4, 5};
    const Cost one = LoopCost(row.pairs, scaled, capped);
    const Cost cost = ValueOrThrow(PriceOf(kSdpa, ForwardSpecs(n), row.attrs));
    EXPECT_EQ(cost.other, 12 * one.other);
    EXPECT_EQ(cost.transcendental, 12 * one.transcendental);
    const Cost back = ValueOrThrow(PriceOf(kSdpaGrad, BackwardSpecs(n), row.attrs));
    // Gradients of two heads added: B K Hkv (d + e) additions.
    const Count shared = 2 * row.keys * 3 * (4 + 5);
    EXPECT_EQ(back.other, 12 * GradLoopCost(row.pairs, scaled, capped).other + shared);
    EXPECT_EQ(back.transcendental, 0);
  }
}

// A layer of a model: projections, attention, projection.
Graph LayerStep(AttentionFn attention) {
  const auto weight = [](int64_t n, int64_t k, const char* name) {
    const Tensor w = Tensor::Empty({DType::kF32, {n, k}}, kMeta);
    Declare(w, Origin::kParameter, name);
    return w;
  };
  const Tensor wq = weight(64, 32, "q"), wk = weight(16, 32, "k"), wv = weight(16, 32, "v");
  const Tensor wo = weight(32, 64, "o");
  Tape tape;
  tape.Watch({wq, wk, wv, wo});
  const Tensor x = Tensor::Empty({DType::kF32, {2, 10, 32}}, kMeta);
  const Tensor q = Reshape(Linear(x, wq), {2, 10, 8, 8});
  const Tensor k = Reshape(Linear(x, wk), {2, 10, 2, 8}), v = Reshape(Linear(x, wv), {2, 10, 2, 8});
  const Tensor y = Reshape(attention(q, k, v, {.causal = true}), {2, 10, 64});
  const Tensor dy = Tensor::Empty({DType::kF32, {2, 10, 32}}, kMeta);
  tape.Gradient(Linear(y, wo), std::vector<Tensor>{wq, wk, wv, wo}, {.seed = dy});
  return tape.Finish();
}

TEST(Sdpa, LeavesTheSplitOfAModelAsItIs) {
  const Graph fused = LayerStep(FusedAttention), composed = LayerStep(ComposedAttention);
  EXPECT_SPLIT_PROVEN(fused);
  EXPECT_SPLIT_PROVEN(composed);
  // Projections of 20 rows, two products of 2 · 8 heads · 10² pairs of 8. Backward twice that, less
  // the gradient of x by q, k and v.
  const Count projections = 2 * 20 * 32 * (64 + 16 + 16), last = 2 * 20 * 64 * 32;
  const Count products = 2 * 2 * (2 * 8 * 100) * 8;
  for (const Graph* graph : {&fused, &composed}) {
    EXPECT_FLOPS(*graph, .forward = projections + last + products,
                 .backward = projections + 2 * last + 2 * products);
  }
  for (const Node& node : fused.nodes) {
    EXPECT_NE(std::string(node.op->name), "contiguous");
    EXPECT_NE(std::string(node.op->name), "transpose");
  }
}

}  // namespace
}  // namespace tally
