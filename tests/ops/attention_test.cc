#include "tally/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/autograd/tape.h"
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

TEST(Attention, NamesWhatDoesNotFit) {
  const Tensor q = Tensor::Zeros({DType::kF32, {2, 3}}), k = Tensor::Zeros({DType::kF32, {2, 4}});
  EXPECT_EQ(MessageOf([&] { Attention(q, k, k); }),
            "attention: the last dims of q and k differ: q is f32[2,3], k is f32[2,4], v is "
            "f32[2,4]");
  EXPECT_THAT(MessageOf([&] { Attention(q, q, q, {.dropout = 0.1}); }),
              HasSubstr("needs a source of random numbers"));
}

}  // namespace
}  // namespace tally
