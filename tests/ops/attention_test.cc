#include "tally/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/join.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// By plain loops, one head: q [Q, d], k [K, d], v [K, e].
struct Head {
  int64_t queries, keys, d, e;
};
std::vector<double> AttentionOf(const Head& h, const double* q, const double* k, const double* v,
                                double scale, bool causal) {
  std::vector<double> y(h.queries * h.e);
  for (int64_t i = 0; i < h.queries; ++i) {
    const int64_t seen = causal ? i + 1 + h.keys - h.queries : h.keys;
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = 0; j < seen; ++j) {
      double score = 0;
      for (int64_t c = 0; c < h.d; ++c) score += q[i * h.d + c] * k[j * h.d + c];
      weights.push_back(std::exp(score * scale));
      sum += weights.back();
    }
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t c = 0; c < h.e; ++c) y[i * h.e + c] += weights[j] / sum * v[j * h.e + c];
    }
  }
  return y;
}

TEST(Attention, EqualsLoopsCausalAndNot) {
  const Head h{3, 5, 4, 2};
  const Tensor q = WildTensor({DType::kF64, {2, 2, 3, 4}}, 1);
  const Tensor k = WildTensor({DType::kF64, {2, 2, 5, 4}}, 2);
  const Tensor v = WildTensor({DType::kF64, {2, 2, 5, 2}}, 3);
  const std::vector<double> qs = q.ToDoubles(), ks = k.ToDoubles(), vs = v.ToDoubles();
  for (bool causal : {false, true}) {
    for (double scale : {0.0, 0.7}) {
      const Tensor y = Attention(q, k, v, {.causal = causal, .scale = scale});
      ASSERT_EQ(y.shape(), Shape({2, 2, 3, 2}));
      for (int head = 0; head < 4; ++head) {
        const std::vector<double> expected =
            AttentionOf(h, &qs[head * 12], &ks[head * 20], &vs[head * 10], scale == 0 ? 0.5 : scale,
                        causal);  // 1 / sqrt(4)
        for (int i = 0; i < 6; ++i) {
          EXPECT_NEAR(y.ToDoubles()[head * 6 + i], expected[i], 1e-13);
        }
      }
    }
  }
}

TEST(Attention, CountsTheFullSquareTwice) {
  Tape tape;
  const Tensor q = Tensor::Empty({DType::kF32, {2, 3, 8, 4}}, kMeta);
  Attention(q, q, q, {.causal = true});
  Count matmul = 0;
  const Graph graph = tape.Finish();
  for (const Node& node : graph.nodes) matmul += CostOf(graph, node).matmul;
  EXPECT_EQ(matmul, 2 * (2 * 2 * 3 * 8 * 8 * 4));
}

TEST(Attention, DropsProbabilitiesWithNumbersOfItsOwn) {
  const Tensor q = WildTensor({DType::kF64, {1, 6, 4}});
  Random random(5);
  const Tensor y = Attention(q, q, q, {.dropout = 1, .random = &random});
  EXPECT_THAT(y.ToDoubles(), testing::Each(0));
  EXPECT_EQ(random.offset(), 36u);
}

// The same with k and v repeated for every head of q.
TEST(Attention, SharesHeadsOfKeysWithoutRepeatingThem) {
  const Tensor q = WildTensor({DType::kF64, {2, 6, 3, 4}}, 1);
  const Tensor k = WildTensor({DType::kF64, {2, 2, 5, 4}}, 2);
  const Tensor v = WildTensor({DType::kF64, {2, 2, 5, 3}}, 3);
  const auto repeated = [](const Tensor& x) {
    return Cat({Select(x, 1, 0), Select(x, 1, 0), Select(x, 1, 0), Select(x, 1, 1), Select(x, 1, 1),
                Select(x, 1, 1)},
               1);
  };
  Tape tape;
  const Tensor y = Attention(q, k, v, {.causal = true});
  const Graph graph = tape.Finish();
  for (const auto& s : graph.storages) {
    EXPECT_NE(s.bytes, 2 * 6 * 5 * 4 * 8) << "k was repeated";
  }
  const auto heads = [&](const Tensor& x) {
    return Reshape(repeated(x), {2, 6, x.dim(2), x.dim(3)});
  };
  const std::vector<double> expected =
      Attention(q, heads(k), heads(v), {.causal = true}).ToDoubles();
  const std::vector<double> actual = y.ToDoubles();
  ASSERT_EQ(y.shape(), Shape({2, 6, 3, 3}));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-14);
}

TEST(Attention, CapsScores) {
  const Head h{3, 3, 2, 2};
  const Tensor x = WildTensor({DType::kF64, {3, 2}}, 5);
  const std::vector<double> values = x.ToDoubles();
  const std::vector<double> y =
      Attention(x, x, x, {.causal = true, .scale = 0.7, .softcap = 1.5}).ToDoubles();
  for (int64_t i = 0; i < h.queries; ++i) {
    double sum = 0, expected[2] = {0, 0};
    for (int64_t j = 0; j <= i; ++j) {
      const double score = values[i * 2] * values[j * 2] + values[i * 2 + 1] * values[j * 2 + 1];
      const double weight = std::exp(1.5 * std::tanh(0.7 * score / 1.5));
      sum += weight;
      for (int c = 0; c < 2; ++c) expected[c] += weight * values[j * 2 + c];
    }
    for (int c = 0; c < 2; ++c) EXPECT_NEAR(y[i * 2 + c], expected[c] / sum, 1e-13);
  }
}

TEST(Attention, RefusesDropoutWhereItIsFused) {
  const Tensor q = Tensor::Zeros({DType::kF32, {1, 2, 1, 4}});
  Random random(1);
  EXPECT_THAT(MessageOf([&] { FusedAttention(q, q, q, {.dropout = 0.1, .random = &random}); }),
              HasSubstr("fused_attention: drops no probabilities; use ComposedAttention, or "
                        "dropout 0: q is f32[1,2,1,4]"));
}

TEST(Attention, NamesWhatDoesNotFit) {
  const Tensor q = Tensor::Zeros({DType::kF32, {2, 3}}), k = Tensor::Zeros({DType::kF32, {2, 4}});
  EXPECT_EQ(MessageOf([&] { Attention(q, k, k); }),
            "attention: the last dims of q and k differ: q is f32[2,3], k is f32[2,4], v is "
            "f32[2,4]");
  EXPECT_THAT(MessageOf([&] { Attention(q, q, q, {.dropout = 0.1}); }),
              HasSubstr("needs a source of random numbers"));
  EXPECT_THAT(MessageOf([&] { Attention(q, q, q, {.window = -2}); }),
              HasSubstr("the window is -2; it is a number of keys, or 0 for none"));
  EXPECT_THAT(MessageOf([&] { Attention(q, q, q, {.softcap = -2}); }),
              HasSubstr("the softcap is -2; it is positive, or 0 for none"));
  const Tensor six = Tensor::Zeros({DType::kF32, {6, 2, 3}});
  const Tensor four = Tensor::Zeros({DType::kF32, {4, 2, 3}});
  EXPECT_THAT(MessageOf([&] { Attention(six, four, four); }),
              HasSubstr("the 6 heads of q are no multiple of the 4 heads of k and v"));
}

}  // namespace
}  // namespace tally
