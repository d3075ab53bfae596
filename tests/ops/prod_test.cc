#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/prod_grad.h"
#include "tally/ops/reduce.h"
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

Counted ProductOf(const Numbers& x) {
  if (x.empty()) return 1;
  Counted product = x[0];
  for (size_t i = 1; i < x.size(); ++i) product = product * x[i];
  return product;
}

// The elements that go into each output, in order.
std::vector<Numbers> GroupsOf(const Tensor& x, const std::vector<int>& axes) {
  int64_t outputs = 1;
  std::vector<bool> reduced(x.rank(), axes.empty());
  for (const int a : axes) reduced[a] = true;
  for (int a = 0; a < x.rank(); ++a) outputs *= reduced[a] ? 1 : x.dim(a);
  std::vector<Numbers> groups(outputs);
  const std::vector<double> values = x.ToDoubles();
  ForEachIndex(x.shape(), [&](const std::vector<int64_t>& index, int64_t at) {
    int64_t to = 0;
    for (int a = 0; a < x.rank(); ++a) to = reduced[a] ? to : to * x.dim(a) + index[a];
    groups[to].push_back(values[at]);
  });
  return groups;
}

struct Case {
  Shape shape;
  std::vector<int> axes;
};
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{7}, {}},           {{3, 5}, {}},
      {{3, 5}, {0}},       {{3, 5}, {1}},
      {{2, 3, 4}, {1}},    {{2, 3, 4}, {0, 2}},
      {{2, 3, 4}, {0, 1}}, {{2, 3, 2, 2}, {1, 3}},
      {{2, 1, 5}, {1}},    {{}, {}},
      {{2, 700}, {0}},     {{0, 4}, {0}},
      {{0, 4}, {1}},
  };
  return cases;
}

// Between 0.75 and 1.25, so that products of many stay near 1.
Tensor NearOne(const TensorSpec& spec) {
  std::vector<double> values = Wild(spec.numel());
  for (double& v : values) v = 1 + v / 8;
  return Tensor::FromDoubles(values, spec);
}

TEST(Prod, AgreesWithLoopsAndCostsWhatTheyDo) {
  for (const DType dtype : kComputingFloats) {
    for (const Case& c : Cases()) {
      const Tensor x = NearOne({dtype, c.shape});
      const std::vector<Numbers> groups = GroupsOf(x, c.axes);
      std::vector<double> expected;
      const Cost counted = CostOf([&] {
        for (const Numbers& group : groups) expected.push_back(ProductOf(group).value);
      });
      const Axes axes(c.axes);
      const Tensor y = Prod(x, axes);
      EXPECT_EQ(*PriceOf(kProd, {x.spec()}, ReduceAttrs{axes, false}), counted);
      EXPECT_EQ(Prod(x, axes, true).rank(), x.rank());
      const std::vector<double> values = y.ToDoubles();
      ASSERT_EQ(values.size(), expected.size());
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(Close(values[i], expected[i], Tolerance(dtype)))
            << c.shape.ToString() << " " << i << ": " << values[i];
      }
    }
  }
}

TEST(Prod, HandlesLongRowsColumnsAndSpecialValues) {
  // Runs of twos and of halves, exact in any order. No lane gets only one of them.
  std::vector<float> values(128 * 70 + 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i / 64 % 2 == 0 ? 2.0f : 0.5f;
  EXPECT_EQ(Prod(F32(values)).Item(), 2);
  EXPECT_EQ(Prod(Tensor::FromVector(values, {128 * 70 + 1, 1})).Item(), 2);
  values[5000] = 0;
  EXPECT_EQ(Prod(F32(values)).Item(), 0);
  values[77] = kNaN;
  EXPECT_TRUE(std::isnan(Prod(F32(values)).Item()));
  EXPECT_EQ(Prod(Tensor::Ones({DType::kF32, {0}})).Item(), 1);
}

TEST(Prod, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = NearOne({DType::kF32, {90, 1000}});
  const auto all = [&](int threads) {
    return WithThreads(threads, [&] {
      Tape tape;
      tape.Watch(x);
      const Tensor y = Prod(x, {0});
      return std::vector<Tensor>{y, tape.Gradient(y, x, {.seed = Tensor::Ones(y.spec())})};
    });
  };
  const std::vector<Tensor> one = all(1), three = all(3);
  EXPECT_TRUE(BitEqual(one[0], three[0]));
  EXPECT_TRUE(BitEqual(one[1], three[1]));
}

TEST(Prod, RefusesAxesAndTypes) {
  EXPECT_EQ(MessageOf([] {
              Prod(Tensor::Ones({DType::kF32, {2, 3}}), {2});
            }),
            "prod: axis 2 is outside [-2, 2): x is f32[2,3]");
  EXPECT_EQ(MessageOf([] {
              Prod(Tensor::Ones({DType::kI64, {2}}));
            }),
            "prod: computes on f64, f32, bf16 and f16; cast first: x is i64[2]");
}

std::vector<double> GradientOf(const std::vector<double>& values, double dy, bool create_graph) {
  const Tensor x = F64(values);
  Tape tape;
  tape.Watch(x);
  GradientOptions options{.seed = Tensor::Full({DType::kF64, {}}, dy)};
  options.create_graph = create_graph;
  return tape.Gradient(Prod(x), x, options).ToDoubles();
}

TEST(Prod, HasTheRightGradientAtZeros) {
  for (const bool create_graph : {false, true}) {
    // None: 2·3·4 / each. One: its own is the product of the rest. Two: all are 0.
    EXPECT_THAT(GradientOf({2, 3, 4}, 10, create_graph), ElementsAre(120, 80, 60));
    EXPECT_THAT(GradientOf({2, 0, 4}, 10, create_graph), ElementsAre(0, 80, 0));
    EXPECT_THAT(GradientOf({0, 3, 0}, 10, create_graph), ElementsAre(0, 0, 0));
    EXPECT_THAT(GradientOf({5}, 10, create_graph), ElementsAre(10));
    EXPECT_THAT(GradientOf({5, 0}, 10, create_graph), ElementsAre(0, 50));
  }
}

TEST(Prod, HasTheRightSecondGradientAtZeros) {
  // d²(xyz)/dx_i dx_j is the third element: x = (2, 0, 0), direction (1, 10, 100).
  const Tensor x = F64({2, 0, 0});
  Tape tape;
  tape.Watch(x);
  GradientOptions options;
  options.create_graph = true;
  const Tensor dx = tape.Gradient(Prod(x), x, options);
  const Tensor along = Sum(Mul(dx, F64({1, 10, 100})));
  // Row i: sum over j of v_j times the element that is neither.
  EXPECT_THAT(tape.Gradient(along, x).ToDoubles(), ElementsAre(0, 100 * 2, 10 * 2));
}

TEST(Prod, HasGradientsOfDifferences) {
  for (const Case& c : Cases()) {
    if (c.shape.numel() > 100) continue;
    std::vector<double> values = Wild(c.shape.numel());
    for (size_t i = 0; i < values.size(); i += 4) values[i] = 0;
    const Tensor x = Tensor::FromDoubles(values, {DType::kF64, c.shape});
    EXPECT_TRUE(GradCheck([&](const Tensors& in) { return Prod(in[0], Axes(c.axes)); }, {x}))
        << c.shape.ToString();
  }
}

// The products from the left, then from the right with dy, as the kernel's header tells it.
TEST(ProdGrad, CostsTheProductsOfAPlainLoop) {
  for (const int64_t n : {0, 1, 2, 3, 8}) {
    const Numbers x(n, 1.5);
    const Cost counted = CostOf([&] {
      Numbers left(n), dx(n);
      if (n > 1) left[1] = x[0];
      for (int64_t i = 2; i < n; ++i) left[i] = left[i - 1] * x[i - 1];
      Counted right = 2.0;
      for (int64_t i = n - 1; i > 0; --i) {
        dx[i] = left[i] * right;
        right = right * x[i];
      }
      if (n > 0) dx[0] = right;
    });
    const TensorSpec spec{DType::kF32, {n}}, dy{DType::kF32, {1}};
    EXPECT_EQ(*PriceOf(kProdGrad, {spec, dy}, ProdGradAttrs{0}), counted) << n;
  }
}

}  // namespace
}  // namespace tally
