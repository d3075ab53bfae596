#include "tally/ops/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/view.h"
#include "tally/tests/ops/gradient_rule_helpers.h"
#include "tally/tests/ops/product_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace product_helpers;

struct Case {
  Shape x, w;
  bool transposed = true;
  bool bias = true;
  Shape y;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{2, 3}, {4, 3}, true, true, {2, 4}},
      {{2, 3}, {4, 3}, true, false, {2, 4}},
      {{2, 3}, {3, 4}, false, true, {2, 4}},
      {{2, 3}, {3, 4}, false, false, {2, 4}},
      {{3}, {4, 3}, true, true, {4}},
      {{3}, {3, 4}, false, true, {4}},
      {{2, 5, 3}, {4, 3}, true, true, {2, 5, 4}},
      {{2, 5, 3}, {3, 4}, false, true, {2, 5, 4}},
      {{2, 1, 5, 3}, {1, 3}, true, true, {2, 1, 5, 1}},
      {{0, 3}, {4, 3}, true, true, {0, 4}},
      {{2, 0}, {4, 0}, true, true, {2, 4}},
  };
  return cases;
}

std::string Text(const Case& c) {
  return c.x.ToString() + " " + c.w.ToString() + (c.transposed ? "T" : "") +
         (c.bias ? " with bias" : "");
}

using Operands = std::vector<Tensor>;

Operands OperandsOf(const Case& c, DType dtype) {
  Operands in = {SmallIntegers({dtype, c.x}, 1), SmallIntegers({dtype, c.w}, 2)};
  if (c.bias) in.push_back(SmallIntegers({dtype, {c.y[-1]}}, 3));
  return in;
}

Tensor LinearOf(const Operands& in, bool transposed) {
  return Linear(in[0], in[1], in.size() == 3 ? in[2] : Tensor(), transposed);
}

// Row by row, counting two FLOPs per multiply-add and one per bias.
struct ByLoops {
  std::vector<double> values;
  Cost cost;
};

ByLoops RunLoops(const Operands& in, bool transposed) {
  const std::vector<double> x = in[0].ToDoubles(), w = in[1].ToDoubles();
  const int64_t out = in[1].dim(transposed ? 0 : 1), width = in[0].dim(-1);
  int64_t rows = 1;
  for (int i = 0; i + 1 < in[0].rank(); ++i) rows *= in[0].dim(i);
  ByLoops result;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < out; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < width; ++l) {
        sum += x[i * width + l] * (transposed ? w[j * width + l] : w[l * out + j]);
        result.cost.matmul += 2;
      }
      if (in.size() == 3) {
        sum += in[2].ToDoubles()[j];
        result.cost.other += 1;
      }
      result.values.push_back(sum);
    }
  }
  return result;
}

std::string ErrorOf(const TensorSpec& x, const TensorSpec& w, const TensorSpec& bias,
                    bool transposed = true) {
  try {
    Linear(Tensor::Empty(x, kMeta), Tensor::Empty(w, kMeta), Tensor::Empty(bias, kMeta),
           transposed);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Linear, MultipliesAndAddsTheBiasByHand) {
  // w = [[1, 2], [3, 4], [5, 6]]: [1·10 + 2·20 + 1, 3·10 + 4·20 + 2, 5·10 + 6·20 + 3]
  const Tensor y = Linear(Tensor::FromVector<double>({10, 20}, {1, 2}),
                          Tensor::FromVector<double>({1, 2, 3, 4, 5, 6}, {3, 2}),
                          Tensor::FromVector<double>({1, 2, 3}, {3}));
  EXPECT_EQ(y.shape(), Shape({1, 3}));
  EXPECT_THAT(y.ToDoubles(), ElementsAre(51, 112, 173));
}

TEST(Linear, AgreesWithLoopsForEveryShapeAndType) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(Text(c) + " " + Name(dtype));
      const Operands in = OperandsOf(c, dtype);
      const Tensor y = LinearOf(in, c.transposed);
      EXPECT_EQ(y.spec(), (TensorSpec{dtype, c.y}));
      EXPECT_EQ(y.ToDoubles(), RunLoops(in, c.transposed).values);
    }
  }
}

TEST(Linear, CountsTheProductAndTheBiasApart) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    const Operands in = OperandsOf(c, DType::kF32);
    std::vector<TensorSpec> specs;
    for (const Tensor& t : in) specs.push_back(t.spec());
    const absl::StatusOr<Cost> cost = PriceOf(kLinear, specs, LinearAttrs{c.transposed});
    ASSERT_TRUE(cost.ok());
    EXPECT_EQ(*cost, RunLoops(in, c.transposed).cost);
  }
}

TEST(Linear, ReadsViewsInPlace) {
  const Tensor x = Transpose(SmallIntegers({DType::kF32, {5, 2, 3}}, 1), 0, 1);
  const Tensor w = Transpose(SmallIntegers({DType::kF32, {3, 4}}, 2), 0, 1);
  const Tensor bias = SmallIntegers({DType::kF32, {4}}, 3);
  Listing listing;
  const Tensor y = Linear(x, w, bias);
  EXPECT_THAT(listing.names, ElementsAre("linear"));
  EXPECT_EQ(y.ToDoubles(), RunLoops({x, w, bias}, true).values);
}

TEST(Linear, TakesABiasWithStrides) {
  const Operands in = {SmallIntegers({DType::kF32, {2, 3}}, 1),
                       SmallIntegers({DType::kF32, {4, 3}}, 2),
                       Slice(SmallIntegers({DType::kF32, {8}}, 3), 0, 0, 8, 2)};
  EXPECT_EQ(LinearOf(in, true).ToDoubles(), RunLoops(in, true).values);
}

TEST(Linear, RefusesMixedTypes) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 3}}, {DType::kF32, {4, 3}}, {DType::kBF16, {4}}),
              HasSubstr("linear: operands differ in dtype; cast them: x is f32[2,3], w is "
                        "f32[4,3], bias is bf16[4]"));
}

TEST(Linear, RefusesTypesThatDoNotCompute) {
  EXPECT_THAT(ErrorOf({DType::kI32, {2, 3}}, {DType::kI32, {4, 3}}, {DType::kI32, {4}}),
              HasSubstr("computes on"));
}

TEST(Linear, NamesTheShapesAndTheWayOut) {
  EXPECT_EQ(ErrorOf({DType::kF32, {2, 3}}, {DType::kF32, {3, 4}}, {DType::kF32, {4}}),
            "linear: the last axis of x is not the width of w: x is f32[2,3], w is f32[3,4], bias "
            "is f32[4]; they fit without transpose_weight");
}

TEST(Linear, OffersNoWayOutThatDoesNotFit) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 5}}, {DType::kF32, {3, 4}}, {DType::kF32, {4}}),
              Not(HasSubstr("they fit")));
}

TEST(Linear, RefusesABiasOfAnotherSize) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 3}}, {DType::kF32, {4, 3}}, {DType::kF32, {3}}),
              HasSubstr("bias must have shape [4]"));
}

TEST(Linear, RefusesAWeightThatIsNoMatrix) {
  EXPECT_THAT(ErrorOf({DType::kF32, {2, 3}}, {DType::kF32, {3}}, {DType::kF32, {3}}),
              HasSubstr("wants a matrix as w"));
}

Tensor GradientOf(const Operands& in, const Case& c, const Tensor& dy, int which) {
  return GradientByRule(kLinear, in, LinearAttrs{c.transposed}, dy, which, /*create_graph=*/false);
}

TEST(Linear, HasTheGradientsOfDifferences) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    const Operands in = OperandsOf(c, DType::kF64);
    const Tensor dy = SmallIntegers({DType::kF64, c.y}, 4);
    for (int which = 0; which < static_cast<int>(in.size()); ++which) {
      const Tensor grad = GradientOf(in, c, dy, which);
      EXPECT_EQ(SummedTo(grad, in[which].shape()),
                ByDifferences(in, which, dy,
                              [&](const Operands& at) { return LinearOf(at, c.transposed); }));
    }
  }
}

TEST(Linear, GivesTheWeightsGradientInItsLayoutByOneProduct) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Text(c));
    const Operands in = OperandsOf(c, DType::kF64);
    Listing listing;
    const Tensor dw = GradientOf(in, c, SmallIntegers({DType::kF64, c.y}, 4), 1);
    EXPECT_EQ(dw.shape(), c.w);
    EXPECT_THAT(listing.names, ElementsAre("linear", "matmul"));
  }
}

TEST(Linear, KeepsTheInputForTheWeightAndTheWeightForTheInput) {
  EXPECT_EQ(kLinear.grads[0].reads.in(), In(1).in());
  EXPECT_EQ(kLinear.grads[1].reads.in(), In(0).in());
  EXPECT_EQ(kLinear.grads[2].reads.in(), 0);
}

}  // namespace
}  // namespace tally
