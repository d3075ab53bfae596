#include "tally/ops/topk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/elementwise_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// k times the greatest of what is left, with the compares counted; a later equal one never wins.
struct Chosen {
  std::vector<double> values;
  std::vector<int64_t> indices;
};
Chosen ByLoops(const std::vector<double>& row, int64_t k) {
  Chosen chosen;
  std::vector<bool> taken(row.size());
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (size_t i = 0; i < row.size(); ++i) {
      if (taken[i]) continue;
      if (best < 0 || Greater(row[i], row[best])) best = static_cast<int64_t>(i);
    }
    taken[best] = true;
    chosen.values.push_back(row[best]);
    chosen.indices.push_back(best);
  }
  return chosen;
}

TEST(TopK, GivesTheGreatestInDescendingOrder) {
  const TopKResult top = TopK(F32({3, 1, 4, 1, 5, 9, 2, 6}), 3);
  EXPECT_THAT(top.values.ToDoubles(), ElementsAre(9, 6, 5));
  EXPECT_THAT(top.indices.ToVector<int64_t>(), ElementsAre(5, 7, 4));
}

TEST(TopK, KeepsEqualElementsInOrderOfIndex) {
  const TopKResult top = TopK(F32({2, 7, 2, 7, 2, 7}), 5);
  EXPECT_THAT(top.indices.ToVector<int64_t>(), ElementsAre(1, 3, 5, 0, 2));
  EXPECT_THAT(TopK(F32({0.0f, -0.0f, 0.0f}), 2).indices.ToVector<int64_t>(), ElementsAre(0, 1));
}

TEST(TopK, TakesANaNAsTheGreatest) {
  const TopKResult top = TopK(F32({1, kInf, kNaN, -kInf, kNaN}), 5);
  EXPECT_THAT(top.indices.ToVector<int64_t>(), ElementsAre(2, 4, 1, 0, 3));
  // Also when the NaN comes after the k first of a long row.
  std::vector<float> row(200, kInf);
  row[150] = kNaN;
  EXPECT_THAT(TopK(F32(row), 2).indices.ToVector<int64_t>(), ElementsAre(150, 0));
}

TEST(TopK, WorksOnEveryRowOfTheLastAxis) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 6, 5, 4, 0, 9, 0, 7, 7, 8}, {2, 2, 3});
  const TopKResult top = TopK(x, 1);
  EXPECT_EQ(top.values.shape(), Shape({2, 2, 1}));
  EXPECT_THAT(top.values.ToDoubles(), ElementsAre(3, 6, 9, 8));
  EXPECT_THAT(top.indices.ToVector<int64_t>(), ElementsAre(2, 0, 1, 2));
}

TEST(TopK, AgreesWithLoopsForEveryTypeAndNumberOfThreads) {
  for (const DType dtype : kComputingFloats) {
    for (const int64_t n : {1, 7, 31, 32, 33, 64, 1000}) {
      const int64_t rows = 70;
      std::vector<double> values = Wild(rows * n, 3);
      for (double& v : values) v = std::round(v * 8) / 8;  // 33 values: many ties
      const Tensor x = Tensor::FromDoubles(values, {dtype, {rows, n}});
      for (const int64_t k : {int64_t{1}, std::min<int64_t>(n, 8), n / 2, n}) {
        Chosen expected;
        for (int64_t r = 0; r < rows; ++r) {
          const auto row = values.begin() + r * n;
          const Chosen one = ByLoops({row, row + n}, k);
          expected.values.insert(expected.values.end(), one.values.begin(), one.values.end());
          expected.indices.insert(expected.indices.end(), one.indices.begin(), one.indices.end());
        }
        for (const int threads : {1, 3}) {
          const TopKResult top = WithThreads(threads, [&] { return TopK(x, k); });
          ASSERT_EQ(top.values.ToDoubles(), expected.values) << Name(dtype) << n << " " << k;
          ASSERT_EQ(top.indices.ToVector<int64_t>(), expected.indices) << n << " " << k;
        }
      }
    }
  }
}

TEST(TopK, CostsTheComparesOfAPlainLoop) {
  for (const int64_t n : {1, 5, 8}) {
    for (int64_t k = 0; k <= n; ++k) {
      const Cost counted = CostOf([&] {
        for (int64_t r = 0; r < 3; ++r) ByLoops(Wild(n, r + 1), k);
      });
      EXPECT_EQ(*PriceOf(kTopK, {{DType::kF32, {3, n}}}, TopKAttrs{k}), counted) << n << " " << k;
    }
  }
  // 8 of 128 experts: 127 + 126 + ... + 120.
  EXPECT_EQ(PriceOf(kTopK, {{DType::kF32, {1, 128}}}, TopKAttrs{8})->other, 988);
}

TEST(TopK, TakesNoneAndNoRows) {
  EXPECT_THAT(TopK(F32({1, 2}), 0).values.ToDoubles(), IsEmpty());
  EXPECT_EQ(TopK(Tensor::Ones({DType::kF32, {0, 5}}), 2).indices.shape(), Shape({0, 2}));
}

TEST(TopK, RefusesWhatHasNoSuchElements) {
  EXPECT_EQ(MessageOf([] {
              TopK(F32({1, 2}), 3);
            }),
            "topk: k is 3, not in [0, 2], the length of the last axis: x is f32[2]");
  EXPECT_EQ(MessageOf([] {
              TopK(F32({1, 2}), -1);
            }),
            "topk: k is -1, not in [0, 2], the length of the last axis: x is f32[2]");
  EXPECT_EQ(MessageOf([] {
              TopK(Tensor::Ones({DType::kF32, {}}), 0);
            }),
            "topk: a scalar has no axis to choose along: x is f32[]");
  EXPECT_EQ(MessageOf([] {
              TopK(Tensor::Ones({DType::kI64, {2}}), 1);
            }),
            "topk: computes on f64, f32, bf16 and f16; cast first: x is i64[2]");
}

TEST(TopK, SendsTheGradientToWhereTheValuesStood) {
  const Tensor x = F64({3, 1, 4, 1, 5});
  Tape tape;
  tape.Watch(x);
  const Tensor y = TopK(x, 2).values;
  const Tensor dx = tape.Gradient(y, x, {.seed = F64({10, 20})});
  EXPECT_THAT(dx.ToDoubles(), ElementsAre(0, 0, 20, 0, 10));
}

TEST(TopK, HasGradientsOfDifferences) {
  const Tensor x = WildTensor({DType::kF64, {4, 9}});
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) {
        const Tensor top = TopK(in[0], 3).values;
        return Mul(top, top);
      },
      {x}));
}

}  // namespace
}  // namespace tally
