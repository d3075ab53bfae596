#include "tally/ops/cumsum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/elementwise_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Line by line over [outer, n, inner].
Numbers ByLoops(const std::vector<double>& x, int64_t outer, int64_t n, int64_t inner,
                bool reverse) {
  Numbers y(x.begin(), x.end());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t j = 0; j < inner; ++j) {
      for (int64_t i = 1; i < n; ++i) {
        const int64_t at = (o * n + (reverse ? n - 1 - i : i)) * inner + j;
        const int64_t before = at + (reverse ? inner : -inner);
        y[at] = y[before] + y[at];
      }
    }
  }
  return y;
}

struct Case {
  Shape shape;
  int axis;
  int64_t outer, n, inner;
};
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{7}, 0, 1, 7, 1},
      {{3, 5}, -1, 3, 5, 1},
      {{3, 5}, 0, 1, 3, 5},
      {{2, 3, 4}, 1, 2, 3, 4},
      {{6, 130}, 1, 6, 130, 1},
      {{9, 1100}, 0, 1, 9, 1100},
      {{300, 200}, 1, 300, 200, 1},
      {{1, 5}, 0, 1, 1, 5},
      {{0, 4}, 1, 0, 4, 1},
      {{0, 4}, 0, 1, 0, 4},
  };
  return cases;
}

TEST(Cumsum, RunsAlongAnAxis) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 10, 20, 30}, {2, 3});
  EXPECT_THAT(Cumsum(x, 1).ToDoubles(), ElementsAre(1, 3, 6, 10, 30, 60));
  EXPECT_THAT(Cumsum(x, 0).ToDoubles(), ElementsAre(1, 2, 3, 11, 22, 33));
  EXPECT_THAT(Cumsum(x, -1, true).ToDoubles(), ElementsAre(6, 5, 3, 60, 50, 30));
}

TEST(Cumsum, AgreesWithLoopsAndCostsWhatTheyDo) {
  for (const DType dtype : kComputingFloats) {
    for (const Case& c : Cases()) {
      for (const bool reverse : {false, true}) {
        const Tensor x = WildTensor({dtype, c.shape});
        Numbers expected;
        const Cost counted =
            CostOf([&] { expected = ByLoops(x.ToDoubles(), c.outer, c.n, c.inner, reverse); });
        EXPECT_EQ(*PriceOf(kCumsum, {x.spec()}, CumsumAttrs{c.axis, reverse}), counted);
        const Tensor one = WithThreads(1, [&] { return Cumsum(x, c.axis, reverse); });
        const Tensor three = WithThreads(3, [&] { return Cumsum(x, c.axis, reverse); });
        EXPECT_TRUE(BitEqual(one, three));
        EXPECT_EQ(one.spec(), x.spec());
        const std::vector<double> y = one.ToDoubles();
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_TRUE(Close(y[i], expected[i].value, Tolerance(dtype)))
              << Name(dtype) << c.shape.ToString() << " " << i << ": " << y[i];
        }
      }
    }
  }
}

TEST(Cumsum, DoesNotLoseSmallTerms) {
  // 2^24 + 1 is no f32: summed in f32, the ones would be lost one by one.
  std::vector<float> values(101, 1.0f);
  values[0] = 0x1p24f;
  EXPECT_EQ(Cumsum(F32(values), 0).ToDoubles().back(), 0x1p24 + 100);
  const Tensor column = Tensor::FromVector(values, {101, 1});
  EXPECT_EQ(Cumsum(column, 0).ToDoubles().back(), 0x1p24 + 100);
  // And 256 + 1 is no bf16.
  const Tensor narrow = Tensor::FromDoubles({256.0, 1.0, 1.0, 1.0, 1.0}, {DType::kBF16, {5}});
  EXPECT_EQ(Cumsum(narrow, 0).ToDoubles().back(), 260);
}

TEST(Cumsum, RefusesAxesAndTypes) {
  EXPECT_EQ(MessageOf([] {
              Cumsum(Tensor::Ones({DType::kF32, {2, 3}}), 2);
            }),
            "cumsum: axis 2 is outside [-2, 2): x is f32[2,3]");
  EXPECT_EQ(MessageOf([] {
              Cumsum(Tensor::Ones({DType::kF32, {}}), 0);
            }),
            "cumsum: axis 0 of a scalar: x is f32[]");
  EXPECT_EQ(MessageOf([] {
              Cumsum(Tensor::Ones({DType::kI64, {2}}), 0);
            }),
            "cumsum: computes on f64, f32, bf16 and f16; cast first: x is i64[2]");
}

TEST(Cumsum, SumsTheGradientInReverse) {
  const Tensor x = F64({1, 2, 3});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Cumsum(x, 0);
  EXPECT_THAT(tape.Gradient(y, x, {.seed = F64({1, 10, 100})}).ToDoubles(),
              ElementsAre(111, 110, 100));
}

TEST(Cumsum, HasGradientsOfDifferences) {
  for (const Case& c : Cases()) {
    if (c.shape.numel() > 100) continue;
    for (const bool reverse : {false, true}) {
      EXPECT_TRUE(GradCheck(
          [&](const Tensors& in) {
            const Tensor sums = Cumsum(in[0], c.axis, reverse);
            return Mul(sums, sums);
          },
          {WildTensor({DType::kF64, c.shape})}));
    }
  }
}

}  // namespace
}  // namespace tally
