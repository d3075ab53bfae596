#include "tally/ops/logsumexp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Counted LogSumExpOf(const Numbers& x) {
  const Counted max = MaxOf(x);
  Numbers e;
  for (Counted v : x) e.push_back(Exp(v - max));
  return max + Log(SumOf(e));
}

TEST(LogSumExp, EqualsLoopsInEveryDtypeAlongEveryAxis) {
  for (const Shape& shape : {Shape({4}), Shape({3, 5}), Shape({2, 1}), Shape({33, 9, 7}),
                             Shape({3, 5, 600}), Shape({2, 9001})}) {
    for (DType dtype : kComputingFloats) {
      const Tensor x = WildTensor({dtype, shape});
      for (int axis = 0; axis < shape.rank(); ++axis) {
        // The axis last, so that its groups are rows.
        const Tensor moved = Transpose(x, axis, -1);
        Numbers expected;
        for (const Numbers& row : RowsOf(moved)) expected.push_back(LogSumExpOf(row));
        const Tensor y = LogSumExp(x, {axis}, true);
        ExpectRow(Transpose(y, axis, -1), 0, expected, Tolerance(dtype), shape.ToString());
        EXPECT_EQ(y.dim(axis), 1);
      }
    }
  }
}

TEST(LogSumExp, TakesAnySetOfAxes) {
  const Tensor x = F64({0, 0, 0, 0, 1, 1, 1, 1}, {2, 2, 2});
  const double four = std::log(4.0), two = std::log(2.0);
  EXPECT_THAT(LogSumExp(x, {1, 2}).ToDoubles(), ElementsAre(DoubleEq(four), DoubleEq(1 + four)));
  const Tensor outer = LogSumExp(x, {2, 0}, true);
  EXPECT_EQ(outer.shape(), Shape({1, 2, 1}));
  const double mixed = two + std::log(1 + std::exp(1.0));
  EXPECT_THAT(outer.ToDoubles(), ElementsAre(DoubleEq(mixed), DoubleEq(mixed)));
  EXPECT_NEAR(LogSumExp(x).Item(), four + std::log(1 + std::exp(1.0)), 1e-15);
  EXPECT_EQ(LogSumExp(x, {}, true).shape(), Shape({1, 1, 1}));
  EXPECT_EQ(LogSumExp(F64({3}, {})).Item(), 3);
}

TEST(LogSumExp, DoesNotOverflowAndKeepsInfinities) {
  const Tensor x =
      F64({1000, 1000, -1000, -1000, -kInf, -kInf, kInf, 0, kNan, 0, -kInf, 5}, {6, 2});
  const double two = std::log(2.0);
  for (int axis : {1, 0}) {
    const Tensor rows = axis == 1 ? x : Transpose(x, 0, 1);
    const std::vector<double> y = LogSumExp(rows, {axis}).ToDoubles();
    EXPECT_DOUBLE_EQ(y[0], 1000 + two);
    EXPECT_DOUBLE_EQ(y[1], -1000 + two);
    EXPECT_EQ(y[2], -kInf);
    EXPECT_EQ(y[3], kInf);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], 5);
  }
  EXPECT_THAT(LogSumExp(Tensor::Zeros({DType::kF64, {2, 0}}), {1}).ToDoubles(),
              ElementsAre(-kInf, -kInf));
}

TEST(LogSumExp, CostsWhatTheLoopCosts) {
  const Numbers row(7, Counted(1));
  const Cost cost = CostOf([&] {
    for (int r = 0; r < 3; ++r) LogSumExpOf(row);
  });
  EXPECT_EQ(*PriceOf(kLogSumExp, {{DType::kF32, {3, 7}}}, LogSumExpAttrs{}), cost);
  EXPECT_EQ(*PriceOf(kLogSumExp, {{DType::kF32, {7, 3}}}, LogSumExpAttrs{0}), cost);
  EXPECT_EQ(cost.other, 3 * (6 + 7 + 6 + 1));
  EXPECT_EQ(cost.transcendental, 3 * (7 + 1));
}

TEST(LogSumExp, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {3, 2, 4}});
  for (const Axes& axes : {Axes{}, Axes{1}, Axes{0, 2}, Axes{-1}}) {
    for (bool keepdim : {false, true}) {
      EXPECT_TRUE(GradCheck(
          [&](const Tensors& in) { return Square(LogSumExp(in[0], axes, keepdim)); }, {x}));
    }
  }
}

TEST(LogSumExp, KeepsXAlone) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kF32, {4, 8}});
  tape.Watch(x);
  const Tensor y = LogSumExp(x, {-1});
  EXPECT_EQ(tape.SavedBytes(), 4 * 4 * 8);
}

TEST(LogSumExp, GivesTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = WildTensor({DType::kF32, {300, 700}});
  const int before = omp_get_max_threads();
  for (int axis : {0, 1}) {
    omp_set_num_threads(1);
    const Tensor one = LogSumExp(x, {axis});
    omp_set_num_threads(3);
    EXPECT_TRUE(BitEqual(one, LogSumExp(x, {axis})));
    omp_set_num_threads(before);
  }
}

TEST(LogSumExp, NamesWhatDoesNotFit) {
  const Tensor x = Tensor::Zeros({DType::kF32, {2, 3}});
  EXPECT_EQ(MessageOf([&] { LogSumExp(x, {2}); }),
            "logsumexp: axis 2 is outside [-2, 2): x is f32[2,3]");
  EXPECT_EQ(MessageOf([&] {
              LogSumExp(x, {0, 2});
            }),
            "logsumexp: axis 2 is outside [-2, 2): x is f32[2,3]");
  EXPECT_EQ(MessageOf([&] { LogSumExp(x, {1, -1}); }), "logsumexp: axis 1 twice: x is f32[2,3]");
  EXPECT_THAT(MessageOf([&] {
                LogSumExp(Tensor::Zeros({DType::kI64, {2}}), {0});
              }),
              HasSubstr("computes on f64, f32, bf16 and f16"));
}

}  // namespace
}  // namespace tally
