#include "tally/ops/binary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tally/ops/apply.h"
#include "tally/ops/unary.h"
#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/gradient_rule_helpers.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

const float kTiny = std::numeric_limits<float>::denorm_min();

// What the test knows of each op, written without the table.
struct BinaryCase {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  Tensor (*scalar)(const Tensor&, double);
  double (*f)(double, double);
  int other, transcendental;
};

double MaxOf(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : a > b ? a : b; }
double MinOf(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : a < b ? a : b; }

const BinaryCase kArithmetic[] = {
    {"add", Add, Add, [](double a, double b) { return a + b; }, 1, 0},
    {"sub", Sub, Sub, [](double a, double b) { return a - b; }, 1, 0},
    {"mul", Mul, Mul, [](double a, double b) { return a * b; }, 1, 0},
    {"div", Div, Div, [](double a, double b) { return a / b; }, 1, 0},
    {"pow", Pow, Pow, [](double a, double b) { return std::pow(a, b); }, 0, 1},
    {"maximum", Maximum, Maximum, MaxOf, 1, 0},
    {"minimum", Minimum, Minimum, MinOf, 1, 0},
};
const BinaryCase kComparisons[] = {
    {"equal", Equal, Equal, [](double a, double b) { return double(a == b); }, 1, 0},
    {"not_equal", NotEqual, NotEqual, [](double a, double b) { return double(a != b); }, 1, 0},
    {"less", Less, Less, [](double a, double b) { return double(a < b); }, 1, 0},
    {"less_equal", LessEqual, LessEqual, [](double a, double b) { return double(a <= b); }, 1, 0},
    {"greater", Greater, Greater, [](double a, double b) { return double(a > b); }, 1, 0},
    {"greater_equal", GreaterEqual, GreaterEqual, [](double a, double b) { return double(a >= b); },
     1, 0},
};

std::string MessageOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

const std::pair<Shape, Shape> kShapes[] = {
    {Shape(), Shape()},
    {Shape({1}), Shape()},
    {Shape({7}), Shape({7})},
    {Shape({7}), Shape()},
    {Shape(), Shape({7})},
    {Shape({5, 70}), Shape({70})},  // bias
    {Shape({70}), Shape({5, 70})},
    {Shape({5, 70}), Shape({5, 1})},  // a number for each row
    {Shape({5, 1}), Shape({1, 70})},  // outer
    {Shape({5, 3}), Shape({3})},      // short rows
    {Shape({4, 1, 6}), Shape({3, 1})},
    {Shape({2, 1, 3, 1, 5}), Shape({4, 1, 7, 1})},
    {Shape({1, 1, 1}), Shape({2, 3, 4})},
    {Shape({2, 3, 64}), Shape({2, 1, 64})},
    {Shape({0}), Shape({1})},
    {Shape({3, 0, 2}), Shape({1, 2})},
    {Shape({2, 2, 2, 2, 2, 2, 2, 2}), Shape({2, 1, 2, 1, 2, 1, 2, 1})},
    {Shape({33, 1, 49}), Shape({33, 5, 1})},
};

std::vector<double> Values(int64_t n, double low, double step) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(low + step * static_cast<double>(i % 23));
  return v;
}

void ExpectBroadcasts(const BinaryCase& c, DType dtype, bool compare) {
  for (const auto& [sa, sb] : kShapes) {
    // Multiples of 1/4 are exact in every float, and so are their sums and products here.
    const Tensor a = Tensor::FromDoubles(Values(sa.numel(), 0.25, 0.25), {dtype, sa});
    const Tensor b = Tensor::FromDoubles(Values(sb.numel(), 0.5, 0.5), {dtype, sb});
    const Tensor y = c.op(a, b);
    const Shape out = BroadcastShapes(sa, sb).value();
    ASSERT_EQ(y.shape(), out) << c.name;
    ASSERT_EQ(y.dtype(), compare ? DType::kBool : dtype) << c.name;
    const std::vector<double> av = a.ToDoubles(), bv = b.ToDoubles(), got = y.ToDoubles();
    std::vector<double> want(out.numel());
    ForEachIndex(out, [&](const std::vector<int64_t>& index, int64_t at) {
      want[at] = c.f(av[BroadcastIndex(sa, index)], bv[BroadcastIndex(sb, index)]);
    });
    const std::vector<double> rounded =
        compare ? want : Tensor::FromDoubles(want, {dtype, out}).ToDoubles();
    for (size_t i = 0; i < got.size(); ++i) {
      // pow rounds in its own way.
      const double slack = std::string(c.name) == "pow" ? std::fabs(rounded[i]) * 0.01 : 0;
      ASSERT_NEAR(got[i], rounded[i], slack)
          << c.name << " " << a.spec().ToString() << " " << b.spec().ToString() << " at " << i;
    }
  }
}

TEST(Binary, BroadcastsLikeAnIndexLoop) {
  for (const BinaryCase& c : kArithmetic) {
    for (DType dtype : {DType::kF64, DType::kF32}) ExpectBroadcasts(c, dtype, false);
  }
}

TEST(Binary, BroadcastsNarrowFloats) {
  // div is left out: f32 rounds first, then bf16.
  for (const BinaryCase& c : {kArithmetic[0], kArithmetic[1], kArithmetic[2], kArithmetic[5]}) {
    for (DType dtype : {DType::kBF16, DType::kF16}) ExpectBroadcasts(c, dtype, false);
  }
}

TEST(Binary, ComparesEveryDtype) {
  for (const BinaryCase& c : kComparisons) {
    for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                        DType::kI32, DType::kU8, DType::kBool}) {
      ExpectBroadcasts(c, dtype, true);
    }
  }
}

TEST(Binary, TakesANumberForB) {
  const Tensor a = Tensor::FromDoubles(Values(100, -2.5, 0.25), {DType::kF32, Shape({100})});
  for (const BinaryCase& c : kArithmetic) {
    if (std::string(c.name) == "pow") continue;
    const std::vector<double> y = c.scalar(a, 0.5).ToDoubles(), x = a.ToDoubles();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(y[i], float(c.f(x[i], 0.5))) << c.name;
  }
  for (const BinaryCase& c : kComparisons) {
    const std::vector<double> y = c.scalar(a, 0.5).ToDoubles(), x = a.ToDoubles();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(y[i], c.f(x[i], 0.5)) << c.name;
  }
}

TEST(Binary, TakesANumberForA) {
  EXPECT_THAT(Sub(10.0, F32({1, 2, 4})).ToVector<float>(), ElementsAre(9, 8, 6));
  EXPECT_THAT(Div(8.0, F32({1, 2, 4})).ToVector<float>(), ElementsAre(8, 4, 2));
}

TEST(Binary, ScalarsAreNotRoundedToTheNarrowDtype) {
  // 1 + 2^-9 is between the bf16 numbers 1 and 1 + 2^-7. Times 256 it is 256.5, which rounds to
  // 256; 1.5 + 255 = 256.5 likewise, from a number that bf16 holds.
  const Tensor x = Tensor::Full({DType::kBF16, Shape({3})}, 384);
  // 384 (1 + 2^-8) = 385.5: halfway is 385, so up to 386. Were the number rounded first: 384.
  EXPECT_THAT(Mul(x, 1 + 0x1p-8).ToDoubles(), ElementsAre(386, 386, 386));
}

TEST(Binary, IntegersWrap) {
  const auto i32 = [](std::vector<int32_t> v) {
    return Tensor::FromVector(v, Shape({int64_t(v.size())}));
  };
  const int32_t top = std::numeric_limits<int32_t>::max(),
                bottom = std::numeric_limits<int32_t>::min();
  EXPECT_THAT(Add(i32({top, 1}), i32({1, 2})).ToVector<int32_t>(), ElementsAre(bottom, 3));
  EXPECT_THAT(Sub(i32({bottom, 1}), i32({1, 2})).ToVector<int32_t>(), ElementsAre(top, -1));
  EXPECT_THAT(Mul(i32({1 << 30, -7}), i32({4, 3})).ToVector<int32_t>(), ElementsAre(0, -21));
  const Tensor u8 = Tensor::FromVector<uint8_t>({250, 3}, Shape({2}));
  EXPECT_THAT(Add(u8, 10).ToVector<uint8_t>(), ElementsAre(4, 13));
  const Tensor i64 = Tensor::FromVector<int64_t>({5, -6}, Shape({2}));
  EXPECT_THAT(Maximum(i64, -1).ToVector<int64_t>(), ElementsAre(5, -1));
}

TEST(Binary, FollowsIeeeAtTheEdges) {
  const Tensor a = F32({0, -0.0f, kInf, 1, kTiny});
  EXPECT_TRUE(
      SameValues(Div(a, F32({0, 1, kInf, 0, 2})).ToVector<float>(), {kNaN, -0.0f, kNaN, kInf, 0}));
  EXPECT_TRUE(SameValues(Add(a, F32({-0.0f, -0.0f, -kInf, kNaN, kTiny})).ToVector<float>(),
                         {0, -0.0f, kNaN, kNaN, 2 * kTiny}));
}

TEST(Maximum, IsNaNIfEitherIs) {
  EXPECT_TRUE(SameValues(Maximum(F32({kNaN, 1, 2, -kInf}), F32({1, kNaN, 3, 5})).ToVector<float>(),
                         {kNaN, kNaN, 3, 5}));
  EXPECT_TRUE(SameValues(Minimum(F32({kNaN, 1, 2, -kInf}), F32({1, kNaN, 3, 5})).ToVector<float>(),
                         {kNaN, kNaN, 2, -kInf}));
}

TEST(Equal, IsFalseForNaN) {
  EXPECT_THAT(Equal(F32({kNaN, 0}), F32({kNaN, -0.0f})).ToVector<bool>(), ElementsAre(false, true));
  EXPECT_THAT(NotEqual(F32({kNaN}), F32({kNaN})).ToVector<bool>(), ElementsAre(true));
}

TEST(Pow, IsThePowerFunction) {
  EXPECT_TRUE(
      SameValues(Pow(F32({2, -2, 0, 0, 0, -8, kInf, kNaN}), F32({10, 3, 0, -1, 2, 0.5f, -1, 0}))
                     .ToVector<float>(),
                 {1024, -8, 1, kInf, 0, kNaN, 0, 1}));
  EXPECT_THAT(Pow(F32({3, 4}), 2).ToVector<float>(), ElementsAre(9, 16));
}

// ---- Cost

#define TALLY_BINARY(function, name, dtypes, f, ...) \
  CountingLane Count##function(CountingLane a, CountingLane b) f
#define TALLY_BINARY_GRAD(function, name, f, ...) \
  CountingLane Count##function(CountingLane dy, CountingLane a, CountingLane b) f
#include "tally/ops/binary_rows.inc"

Cost Counted() {
  return {.other = CountingLane::other, .transcendental = CountingLane::transcendental};
}
Cost Ops(int other, int transcendental) {
  return {.other = other, .transcendental = transcendental};
}
Cost PriceOfName(const std::string& name, const std::vector<TensorSpec>& in) {
  const OpDef* op = FindOp(name);
  EXPECT_NE(op, nullptr) << name;
  return PriceOf(*op, in).value();
}

TEST(BinaryCost, IsWhatTheTextDoesForEachOutputElement) {
  const TensorSpec a{DType::kF32, Shape({4, 1})}, b{DType::kF32, Shape({6})};
#define TALLY_BINARY(function, name, ...)                                            \
  CountingLane::Reset();                                                             \
  for (int i = 0; i < 4 * 6; ++i) Count##function(CountingLane(1), CountingLane(2)); \
  EXPECT_TRUE(PriceOfName(name, {a, b}) == Counted()) << name;
#include "tally/ops/binary_rows.inc"
}

TEST(BinaryCost, OfTheFusedGradientsIsWhatTheirTextDoes) {
  const TensorSpec dy{DType::kF32, Shape({4, 6})}, a{DType::kF32, Shape({4, 1})},
      b{DType::kF32, Shape({6})};
  // a = 0 and a < b take the longest paths; a vector takes every path.
#define TALLY_BINARY_GRAD(function, name, ...)                    \
  CountingLane::Reset();                                          \
  for (int i = 0; i < 4 * 6; ++i) Count##function(1.0, 0.0, 2.0); \
  EXPECT_TRUE(PriceOfName(name, {dy, a, b}) == Counted()) << name;
#include "tally/ops/binary_rows.inc"
}

TEST(BinaryCost, IsTheCountMadeByHand) {
  const TensorSpec spec{DType::kF16, Shape({5})};
  for (const BinaryCase& c : kArithmetic) {
    EXPECT_TRUE(PriceOfName(c.name, {spec, spec}) == Ops(5 * c.other, 5 * c.transcendental))
        << c.name;
    EXPECT_TRUE(PriceOfName(std::string(c.name) + "_scalar", {spec}) ==
                Ops(5 * c.other, 5 * c.transcendental))
        << c.name;
  }
  for (const BinaryCase& c : kComparisons) {
    EXPECT_TRUE(PriceOfName(c.name, {spec, spec}) == Ops(5, 0)) << c.name;
  }
  // -dy (a / b) / b: neg div mul div
  EXPECT_TRUE(PriceOfName("div_grad", {spec, spec, spec}) == Ops(5 * 4, 0));
  // b == 0, b - 1, two products; one pow
  EXPECT_TRUE(PriceOfName("pow_grad_base", {spec, spec, spec}) == Ops(5 * 4, 5));
  EXPECT_TRUE(PriceOfName("pow_scalar_grad", {spec, spec}) == Ops(5 * 4, 5));
  // two compares, two products; pow and log
  EXPECT_TRUE(PriceOfName("pow_grad_exponent", {spec, spec, spec}) == Ops(5 * 4, 5 * 2));
  // two compares and a half
  EXPECT_TRUE(PriceOfName("maximum_grad", {spec, spec, spec}) == Ops(5 * 3, 0));
}

// ---- Gradients

struct GradCase {
  const char* op;
  int wrt;
  double (*df)(double, double);
};
const GradCase kGradCases[] = {
    {"add", 0, [](double, double) { return 1.0; }},
    {"add", 1, [](double, double) { return 1.0; }},
    {"sub", 0, [](double, double) { return 1.0; }},
    {"sub", 1, [](double, double) { return -1.0; }},
    {"mul", 0, [](double, double b) { return b; }},
    {"mul", 1, [](double a, double) { return a; }},
    {"div", 0, [](double, double b) { return 1 / b; }},
    {"div", 1, [](double a, double b) { return -a / (b * b); }},
    {"pow", 0, [](double a, double b) { return b * std::pow(a, b - 1); }},
    {"pow", 1, [](double a, double b) { return std::pow(a, b) * std::log(a); }},
    {"maximum", 0, [](double a, double b) { return a > b    ? 1
                                                   : a == b ? 0.5
                                                            : 0; }},
    {"maximum", 1, [](double a, double b) { return b > a    ? 1
                                                   : a == b ? 0.5
                                                            : 0; }},
    {"minimum", 0, [](double a, double b) { return a < b    ? 1
                                                   : a == b ? 0.5
                                                            : 0; }},
    {"minimum", 1, [](double a, double b) { return b < a    ? 1
                                                   : a == b ? 0.5
                                                            : 0; }},
};

TEST(BinaryGrad, RulesGiveTheDerivativeInTheBroadcastShape) {
  const Shape sa({3, 1}), sb({4}), out({3, 4});
  const Tensor a = Tensor::FromDoubles({0.5, 1.5, 2.0}, {DType::kF64, sa});
  const Tensor b = Tensor::FromDoubles({0.75, 2.0, 1.5, -1.0}, {DType::kF64, sb});
  const Tensor dy = Tensor::FromDoubles(Values(12, -1, 0.5), {DType::kF64, out});
  const std::vector<double> av = a.ToDoubles(), bv = b.ToDoubles(), dv = dy.ToDoubles();
  for (const GradCase& c : kGradCases) {
    for (bool create_graph : {false, true}) {
      const Tensor d = GradientByRule(*FindOp(c.op), {a, b}, {}, dy, c.wrt, create_graph);
      ASSERT_EQ(d.shape(), out) << c.op;
      const std::vector<double> got = d.ToDoubles();
      for (int i = 0; i < 12; ++i) {
        const double want = dv[i] * c.df(av[i / 4], bv[i % 4]);
        EXPECT_NEAR(got[i], want, 1e-14 * (1 + std::fabs(want)))
            << c.op << " input " << c.wrt << " at " << i << " create_graph " << create_graph;
      }
    }
  }
}

TEST(BinaryGrad, RulesOfNumbersGiveTheDerivative) {
  struct Case {
    const char* op;
    double value;
    double (*df)(double x);
  };
  const Case cases[] = {
      {"add_scalar", 3, [](double) { return 1.0; }},
      {"sub_scalar", 3, [](double) { return 1.0; }},
      {"rsub_scalar", 3, [](double) { return -1.0; }},
      {"mul_scalar", 3, [](double) { return 3.0; }},
      {"div_scalar", 4, [](double) { return 0.25; }},
      {"rdiv_scalar", 3, [](double x) { return -3 / (x * x); }},
      {"pow_scalar", 3, [](double x) { return 3 * x * x; }},
      {"pow_scalar", 2, [](double x) { return 2 * x; }},
      {"maximum_scalar", 1, [](double x) { return x > 1    ? 1
                                                  : x == 1 ? 0.5
                                                           : 0; }},
      {"minimum_scalar", 1, [](double x) { return x < 1    ? 1
                                                  : x == 1 ? 0.5
                                                           : 0; }},
  };
  const std::vector<double> x = {0.5, 1, 2}, dy = {1, -2, 3};
  for (const Case& c : cases) {
    for (bool create_graph : {false, true}) {
      const std::vector<double> got =
          GradientByRule(*FindOp(c.op), {F64(x)}, ScalarAttrs{c.value}, F64(dy), 0, create_graph)
              .ToDoubles();
      for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[i], dy[i] * c.df(x[i]), 1e-14) << c.op;
    }
  }
}

TEST(PowGrad, IsZeroWhereTheFunctionIsFlat) {
  const Tensor a = F64({0, 0, 0}), b = F64({0, 2, 1}), dy = F64({1, 1, 1});
  for (bool create_graph : {false, true}) {
    EXPECT_THAT(GradientByRule(*FindOp("pow"), {a, b}, {}, dy, 0, create_graph).ToDoubles(),
                ElementsAre(0, 0, 1));
    EXPECT_THAT(GradientByRule(*FindOp("pow"), {a, b}, {}, dy, 1, create_graph).ToDoubles(),
                ElementsAre(0, 0, 0));
  }
}

TEST(BinaryGrad, ComparisonsAreWithoutGradientByDefinition) {
  for (const BinaryCase& c : kComparisons) {
    EXPECT_EQ(FindOp(c.name)->num_grads(), 0);
    EXPECT_TRUE(FindOp(c.name)->no_gradient.Contains(0));
    EXPECT_TRUE(FindOp(c.name)->no_gradient.Contains(1));
  }
}

// ---- Threads and messages

TEST(Binary, HasTheSameBitsForAnyNumberOfThreads) {
  Random random(5);
  const Tensor a = Tensor::Uniform({DType::kF32, Shape({61, 1777})}, 0.1, 3, random);
  const Tensor row = Tensor::Uniform({DType::kF32, Shape({1777})}, 0.1, 3, random);
  const Tensor column = Tensor::Uniform({DType::kF32, Shape({61, 1})}, 0.1, 3, random);
  for (const BinaryCase& c : kArithmetic) {
    for (const Tensor& b : {row, column, a}) {
      const Tensor one = WithThreads(1, [&] { return c.op(a, b); });
      EXPECT_TRUE(BitEqual(one, WithThreads(3, [&] { return c.op(a, b); }))) << c.name;
    }
  }
}

TEST(Binary, NamesTheCastThatWouldFit) {
  const Tensor f = F32({1, 2});
  const Tensor i = Tensor::Zeros({DType::kI64, Shape({2})});
  const Tensor h = Tensor::Zeros({DType::kBF16, Shape({2})});
  EXPECT_EQ(MessageOf([&] { Add(f, i); }),
            "add: operands differ in dtype; Cast(b, f32) would fit: a is f32[2], b is i64[2]");
  EXPECT_EQ(MessageOf([&] { Mul(h, f); }),
            "mul: operands differ in dtype; Cast(a, f32) would fit: a is bf16[2], b is f32[2]");
  EXPECT_EQ(MessageOf([&] { Div(i, i); }),
            "div: wants f64, f32, bf16 or f16; Cast(a, f32) would fit: a is i64[2], b is i64[2]");
}

TEST(Binary, NamesBothShapesWhenTheyDoNotBroadcast) {
  EXPECT_EQ(
      MessageOf([] {
        Add(Tensor::Zeros({DType::kF32, Shape({2, 3})}), Tensor::Zeros({DType::kF32, Shape({4})}));
      }),
      "add: shapes do not broadcast: a is f32[2,3], b is f32[4]");
}

TEST(Binary, RefusesANumberThatAnIntegerCannotHold) {
  const Tensor i = Tensor::Zeros({DType::kU8, Shape({2})});
  EXPECT_EQ(MessageOf([&] { Add(i, 0.5); }),
            "add_scalar: the number 0.5 is not a value of u8: a is u8[2]");
  EXPECT_EQ(MessageOf([&] { Add(i, 256); }),
            "add_scalar: the number 256 is not a value of u8: a is u8[2]");
  EXPECT_EQ(MessageOf([&] { Add(i, kNaN); }),
            "add_scalar: the number nan is not a value of u8: a is u8[2]");
}

}  // namespace
}  // namespace tally
