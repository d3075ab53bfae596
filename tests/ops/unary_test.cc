#include "tally/ops/unary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"

#include "tally/ops/apply.h"
#include "tally/ops/row_constants.h"
#include "tally/tests/ops/elementwise_helpers.h"

namespace tally {
namespace {

using ::testing::HasSubstr;
using namespace internal;  // NOLINT: the constants of the rows

constexpr double kPi = 3.14159265358979323846;

// What the test knows of each op, written without the table.
struct UnaryCase {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*f)(double);
  double low, high;  // where its accuracy is swept
  double condition;  // error allowed, in 1e-6 of |f(x)| + `absolute`
  double absolute;
  Cost cost;  // per element, counted by hand
  // dx for dy = 1, and its cost
  double (*df)(double);
  bool saves_output;
  Cost grad_cost;
};

double Phi(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }
double GeluTanhOf(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
}
double Logistic(double x) { return 1 / (1 + std::exp(-x)); }
double GeluTanhSlope(double x) {
  const double t = std::tanh(std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / kPi) * (1 + 3 * 0.044715 * x * x);
}
Cost Ops(int other, int transcendental) {
  return {.other = other, .transcendental = transcendental};
}

const std::vector<UnaryCase>& Cases() {
  static const std::vector<UnaryCase> cases = {
      {"neg", Neg, [](double x) { return -x; }, -1e30, 1e30, 0, 0, Ops(1, 0),
       [](double) { return -1.0; }, false, Ops(1, 0)},
      {"abs", Abs, [](double x) { return std::fabs(x); }, -1e30, 1e30, 0, 0, Ops(1, 0),
       [](double x) { return x > 0   ? 1.0
                             : x < 0 ? -1.0
                                     : 0.0; }, false,
       // two compares and the neg of dy
       Ops(2 + 1, 0)},
      {"exp", Exp, [](double x) { return std::exp(x); }, -87, 88, 1, 0, Ops(0, 1),
       [](double x) { return std::exp(x); }, true, Ops(1, 0)},
      {"log", Log, [](double x) { return std::log(x); }, 1e-37, 100, 1, 0, Ops(0, 1),
       [](double x) { return 1 / x; }, false, Ops(1, 0)},
      {"sqrt", Sqrt, [](double x) { return std::sqrt(x); }, 0, 1e30, 1, 0, Ops(0, 1),
       [](double x) { return 0.5 / std::sqrt(x); }, true,
       // 0.5 dy, / y
       Ops(2, 0)},
      {"rsqrt", Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-10, 1e10, 1, 0, Ops(0, 1),
       [](double x) { return -0.5 / (x * std::sqrt(x)); }, true,
       // -0.5 dy, y y y, their product
       Ops(1 + 2 + 1, 0)},
      {"sin", Sin, [](double x) { return std::sin(x); }, -1e4, 1e4, 1, 0, Ops(0, 1),
       [](double x) { return std::cos(x); }, false, Ops(1, 1)},
      {"cos", Cos, [](double x) { return std::cos(x); }, -1e4, 1e4, 1, 0, Ops(0, 1),
       [](double x) { return -std::sin(x); }, false,
       // neg, mul; sin
       Ops(2, 1)},
      {"tanh", Tanh, [](double x) { return std::tanh(x); }, -12, 12, 1, 0, Ops(0, 1),
       [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, true,
       // y y, 1 - , dy
       Ops(3, 0)},
      {"sigmoid", Sigmoid, Logistic, -80, 80, 1, 0,
       // neg, add, div; exp
       Ops(3, 1), [](double x) { return Logistic(x) * (1 - Logistic(x)); }, true,
       // 1 - y, y, dy
       Ops(3, 0)},
      {"relu", Relu, [](double x) { return x > 0 ? x : 0.0; }, -1e30, 1e30, 0, 0,
       // one max
       Ops(1, 0), [](double x) { return x > 0 ? 1.0 : 0.0; }, true,
       // one compare, a select is free
       Ops(1, 0)},
      // For x < 0 the 1 + erf cancels: an error of one unit in the last place of 1 is left.
      {"gelu", Gelu, [](double x) { return x * Phi(x); }, -6, 6, 1, 1,
       // x / sqrt 2, 1 +, 0.5 x, their product; erf
       Ops(4, 1), [](double x) { return Phi(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * kPi); },
       false,
       // cdf: mul add mul; density: mul mul mul; x density, sum, dy; erf and exp
       Ops(3 + 3 + 3, 2)},
      {"gelu_tanh", GeluTanh, GeluTanhOf, -6, 6, 1, 0.3,
       // x x, scale, sub, x, 1 +, div; exp
       Ops(6, 1), GeluTanhSlope, false,
       // s: x x, scale, sub, x, 1 +, 1 / ; slope: scale, add, x; s (1 - s) slope: 3; s +, dy
       Ops(6 + 3 + 3 + 2, 1)},
      {"silu", Silu, [](double x) { return x * Logistic(x); }, -20, 20, 1, 0.1,
       // neg, 1 +, div; exp
       Ops(3, 1), [](double x) { return Logistic(x) * (1 + x * (1 - Logistic(x))); }, false,
       // s: 3; 1 - s, x, 1 +, s, dy
       Ops(3 + 5, 1)},
      {"erf", Erf, [](double x) { return std::erf(x); }, -5, 5, 1, 0, Ops(0, 1),
       [](double x) { return 2 / std::sqrt(kPi) * std::exp(-x * x); }, false,
       // x x, neg, scale, dy; exp
       Ops(4, 1)},
      {"square", Square, [](double x) { return x * x; }, -1e15, 1e15, 1, 0, Ops(1, 0),
       [](double x) { return 2 * x; }, false, Ops(2, 0)},
      {"reciprocal", Reciprocal, [](double x) { return 1 / x; }, 1e-10, 1e10, 1, 0, Ops(1, 0),
       [](double x) { return -1 / (x * x); }, true,
       // neg, y y, their product
       Ops(3, 0)},
  };
  return cases;
}

const UnaryCase& CaseOf(const std::string& name) {
  for (const UnaryCase& c : Cases()) {
    if (name == c.name) return c;
  }
  ADD_FAILURE() << "no case for " << name;
  return Cases()[0];
}

std::vector<double> Sweep(double low, double high, int n) {
  std::vector<double> x;
  for (int i = 0; i < n; ++i) x.push_back(low + (high - low) * i / (n - 1));
  return x;
}

// f32 inputs of every magnitude in [low, high], both signs where the range has both.
std::vector<float> FloatSweep(double low, double high) {
  std::vector<float> x;
  for (double v : Sweep(low, high, 40001)) x.push_back(static_cast<float>(v));
  for (double m = 1e-37; m < high; m *= 1.0037) {
    if (m > low) x.push_back(static_cast<float>(m));
    if (low < 0 && -m > low) x.push_back(static_cast<float>(-m));
  }
  return x;
}

TEST(Unary, HasACaseForEveryOp) {
  size_t ops = 0;
  for (const OpDef* op : UnaryOps()) ops += !absl::EndsWith(op->name, "_grad");
  EXPECT_EQ(ops, Cases().size());
}

TEST(Unary, IsWithinAMillionthOfLibmInF32) {
  for (const UnaryCase& c : Cases()) {
    const std::vector<float> x = FloatSweep(c.low, c.high);
    const std::vector<float> y = c.op(F32(x)).ToVector<float>();
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = c.f(x[i]);
      const double allowed = std::max(1e-6 * c.condition * (std::fabs(want) + c.absolute), 1e-38);
      const double error = std::fabs(y[i] - want) / allowed;
      if (!(error <= worst)) worst = error, at = i;
    }
    EXPECT_LE(worst, 1) << c.name << "(" << x[at] << ") = " << y[at] << ", not " << c.f(x[at]);
  }
}

TEST(Unary, IsWithinFourUlpOfLibmWhereTheFunctionIsElementary) {
  for (const char* name : {"exp", "log", "tanh", "sin", "cos", "erf", "rsqrt", "sqrt"}) {
    const UnaryCase& c = CaseOf(name);
    const std::vector<float> x = FloatSweep(c.low, c.high);
    const std::vector<float> y = c.op(F32(x)).ToVector<float>();
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float want = static_cast<float>(c.f(x[i]));
      const double ulp = std::nextafter(std::fabs(want), kInf) - std::fabs(want);
      worst = std::max(worst, std::fabs(y[i] - c.f(x[i])) / ulp);
    }
    EXPECT_LE(worst, 2.5) << name;
  }
}

TEST(Unary, KeepsFourteenDigitsInF64) {
  for (const UnaryCase& c : Cases()) {
    const std::vector<double> x = Sweep(c.low, c.high, 1001);
    const std::vector<double> y = c.op(F64(x)).ToVector<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = c.f(x[i]);
      ASSERT_NEAR(y[i], want, 2e-14 * (std::fabs(want) + c.absolute)) << c.name << " at " << x[i];
    }
  }
}

TEST(Unary, TreatsSpecialValuesAsLibm) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float subnormal = 1e-40f;
  const std::vector<float> x = {0.0f, -0.0f, kInf, -kInf, kNaN, tiny, -tiny, subnormal, -subnormal};
  for (const char* name :
       {"neg", "abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf"}) {
    const UnaryCase& c = CaseOf(name);
    std::vector<float> want;
    for (float v : x) want.push_back(static_cast<float>(c.f(v)));
    if (std::string(name) == "log") {  // not exact: compare the finite ones apart
      const std::vector<float> y = Log(F32({tiny, subnormal})).ToVector<float>();
      EXPECT_NEAR(y[0], std::log(static_cast<double>(tiny)), 1e-5);
      EXPECT_NEAR(y[1], std::log(static_cast<double>(subnormal)), 1e-5);
      EXPECT_TRUE(SameValues(Log(F32({0.0f, -0.0f, kInf, -kInf, kNaN, -tiny})).ToVector<float>(),
                             {-kInf, -kInf, kInf, kNaN, kNaN, kNaN}));
      continue;
    }
    const std::vector<float> y = c.op(F32(x)).ToVector<float>();
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(want[i]) && want[i] != 0) {
        EXPECT_NEAR(y[i], want[i], std::fabs(want[i]) * 1e-6 + tiny) << name << "(" << x[i] << ")";
      } else {
        EXPECT_TRUE(SameValues({y[i]}, {want[i]})) << name << "(" << x[i] << ") = " << y[i];
      }
    }
  }
}

TEST(Exp, ReachesSubnormalsAndTheLargestFloats) {
  const std::vector<float> x = {88.72f, 88.73f, 1000.0f, -87.5f, -100.0f, -103.9f, -104.5f, -1e30f};
  const std::vector<float> y = Exp(F32(x)).ToVector<float>();
  EXPECT_NEAR(y[0] / std::exp(88.72f), 1, 1e-6);
  EXPECT_EQ(y[1], kInf);
  EXPECT_EQ(y[2], kInf);
  EXPECT_NEAR(y[3], std::exp(static_cast<double>(x[3])), 1.5e-45);
  EXPECT_NEAR(y[4], std::exp(-100.0), 1.5e-45);
  EXPECT_GT(y[5], 0);
  EXPECT_EQ(y[6], 0);
  EXPECT_EQ(y[7], 0);
}

TEST(Sin, ReducesLargeArguments) {
  const std::vector<float> x = {1e5f, -3.0e6f, 1e9f, 3e9f, 1e20f, 3.4e38f, 355.0f, 103993.0f};
  const std::vector<float> s = Sin(F32(x)).ToVector<float>();
  const std::vector<float> c = Cos(F32(x)).ToVector<float>();
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(s[i], std::sin(double{x[i]}), 1e-6 * std::fabs(std::sin(double{x[i]}))) << x[i];
    EXPECT_NEAR(c[i], std::cos(double{x[i]}), 1e-6 * std::fabs(std::cos(double{x[i]}))) << x[i];
  }
}

TEST(Gelu, GoesToZeroAndToTheIdentity) {
  for (const char* name : {"gelu", "gelu_tanh", "silu"}) {
    const UnaryCase& c = CaseOf(name);
    const std::vector<float> y =
        c.op(F32({-1e20f, -200, 200, 1e20f, kInf, kNaN})).ToVector<float>();
    EXPECT_EQ(y[0], 0) << name;
    EXPECT_EQ(y[1], 0) << name;
    EXPECT_EQ(y[2], 200) << name;
    EXPECT_EQ(y[3], 1e20f) << name;
    EXPECT_EQ(y[4], kInf) << name;
    EXPECT_TRUE(std::isnan(y[5])) << name;
  }
}

TEST(Gelu, TanhFormIsThePublishedFormula) {
  // torch.nn.functional.gelu(x, approximate="tanh") of PyTorch, in float64
  EXPECT_NEAR(GeluTanh(F64({1.0})).Item(), 0.8411919906082768, 1e-15);
  EXPECT_NEAR(GeluTanh(F64({-0.5})).Item(), -0.15428599017485606, 1e-15);
}

TEST(Relu, PassesNaN) {
  EXPECT_TRUE(
      SameValues(Relu(F32({kNaN, -1, 2, -kInf, kInf})).ToVector<float>(), {kNaN, 0, 2, 0, kInf}));
}

// ---- Cost

#define TALLY_RESIDUAL_In x
#define TALLY_RESIDUAL_Out y
#define TALLY_UNARY(function, name, residual, f, other, transcendental, g, ...)      \
  CountingLane Count##function(CountingLane x) f CountingLane Count##function##Grad( \
      CountingLane dy, CountingLane TALLY_RESIDUAL_##residual) g
#define TALLY_UNARY_LINEAR(function, name, f, other) CountingLane Count##function(CountingLane x) f
#include "tally/ops/unary_rows.inc"

using Counted = CountingLane (*)(CountingLane);
using CountedGrad = CountingLane (*)(CountingLane, CountingLane);
struct CountedRow {
  const char* name;
  Counted f;
  CountedGrad grad;
};
const CountedRow kCounted[] = {
#define TALLY_UNARY(function, name, ...) {name, Count##function, Count##function##Grad},
#define TALLY_UNARY_LINEAR(function, name, ...) {name, Count##function, nullptr},
#include "tally/ops/unary_rows.inc"
};

Cost PriceOfName(const std::string& name, const std::vector<TensorSpec>& in) {
  const OpDef* op = FindOp(name);
  EXPECT_NE(op, nullptr) << name;
  return PriceOf(*op, in).value();
}

TEST(UnaryCost, IsWhatTheTextDoesForEachElement) {
  const TensorSpec spec{DType::kF32, Shape({3, 7})};
  for (const CountedRow& row : kCounted) {
    CountingLane::Reset();
    for (int i = 0; i < 3 * 7; ++i) row.f(CountingLane(-0.7 + 0.1 * i));
    EXPECT_TRUE(PriceOfName(row.name, {spec}) ==
                Ops(CountingLane::other, CountingLane::transcendental))
        << row.name << ": " << CountingLane::other << ", " << CountingLane::transcendental;
  }
}

TEST(UnaryCost, OfTheGradientIsWhatItsTextDoesForEachElement) {
  const TensorSpec spec{DType::kF32, Shape({3, 7})};
  for (const CountedRow& row : kCounted) {
    if (row.grad == nullptr) continue;
    CountingLane::Reset();
    // The longest path: a compare that needs no second one is still counted by a vector.
    for (int i = 0; i < 3 * 7; ++i) row.grad(CountingLane(1), CountingLane(-0.5));
    EXPECT_TRUE(PriceOfName(std::string(row.name) + "_grad", {spec, spec}) ==
                Ops(CountingLane::other, CountingLane::transcendental))
        << row.name << ": " << CountingLane::other << ", " << CountingLane::transcendental;
  }
}

TEST(UnaryCost, IsTheCountMadeByHand) {
  const TensorSpec spec{DType::kBF16, Shape({5})};
  for (const UnaryCase& c : Cases()) {
    const Cost cost = PriceOfName(c.name, {spec});
    EXPECT_TRUE(cost == Ops(static_cast<int>(5 * c.cost.other),
                            static_cast<int>(5 * c.cost.transcendental)))
        << c.name;
    if (std::string(c.name) == "neg") continue;
    EXPECT_TRUE(PriceOfName(std::string(c.name) + "_grad", {spec, spec}) ==
                Ops(static_cast<int>(5 * c.grad_cost.other),
                    static_cast<int>(5 * c.grad_cost.transcendental)))
        << c.name;
  }
}

// ---- Gradients

TEST(UnaryGrad, FusedOpIsTheDerivative) {
  for (const UnaryCase& c : Cases()) {
    if (std::string(c.name) == "neg") continue;
    const double low = std::max(c.low, -3.0), high = std::min(c.high, 3.0);
    std::vector<double> x = Sweep(low, high, 101), residual, dy;
    for (size_t i = 0; i < x.size(); ++i) {
      residual.push_back(c.saves_output ? c.f(x[i]) : x[i]);
      dy.push_back(0.25 * (1 + static_cast<double>(i % 5)));
    }
    const Tensor dx = Apply(*FindOp(std::string(c.name) + "_grad"), {F64(dy), F64(residual)});
    const std::vector<double> got = dx.ToVector<double>();
    for (size_t i = 1; i < x.size(); ++i) {
      const double want = dy[i] * c.df(x[i]);
      ASSERT_NEAR(got[i], want, 1e-11 * (1 + std::fabs(want))) << c.name << " at " << x[i];
    }
  }
}

TEST(UnaryGrad, SavesTheOutputExactlyWhereTheDerivativeIsAFunctionOfIt) {
  for (const OpDef* op : UnaryOps()) {
    const std::string name = op->name;
    if (absl::EndsWith(name, "_grad")) continue;
    ASSERT_EQ(op->num_grads(), 1) << name;
    const ReadSet reads = op->grads[0].reads;
    if (name == "neg") {
      EXPECT_EQ(reads.in() | reads.out(), 0);
      continue;
    }
    EXPECT_EQ(reads.out(), CaseOf(name).saves_output ? 1 : 0) << name;
    EXPECT_EQ(reads.in(), CaseOf(name).saves_output ? 0 : 1) << name;
  }
}

TEST(UnaryGrad, OfAbsAndReluIsZeroAtZero) {
  EXPECT_EQ(Apply(*FindOp("abs_grad"), {F32({3, 3, 3}), F32({-2, 0, 2})}).ToVector<float>(),
            (std::vector<float>{-3, 0, 3}));
  EXPECT_EQ(Apply(*FindOp("relu_grad"), {F32({3, 3}), F32({0, 2})}).ToVector<float>(),
            (std::vector<float>{0, 3}));
}

// ---- Shapes, threads, dtypes, messages

TEST(Unary, TakesAnyShapeAndKeepsIt) {
  for (const Shape& shape : {Shape(), Shape({1}), Shape({0}), Shape({3, 0, 2}), Shape({5, 1, 7}),
                             Shape({1, 1, 1, 1, 1, 1, 1, 33})}) {
    const Tensor x = Tensor::Full({DType::kF32, shape}, -4);
    const Tensor y = Square(x);
    EXPECT_EQ(y.spec(), x.spec());
    for (double v : y.ToDoubles()) EXPECT_EQ(v, 16);
  }
}

TEST(Unary, GivesAnElementTheSameBitsInEveryPosition) {
  for (const UnaryCase& c : Cases()) {
    const float v = static_cast<float>(0.3 * std::max(c.low, -2.5) + 0.7 * std::min(c.high, 2.5));
    const Tensor one = c.op(F32({v}));
    for (int n = 2; n < 40; ++n) {
      for (float y : c.op(F32(std::vector<float>(n, v))).ToVector<float>()) {
        ASSERT_EQ(y, one.ToVector<float>()[0]) << c.name << " " << n;
      }
    }
  }
}

TEST(Unary, HasTheSameBitsForAnyNumberOfThreads) {
  Random random(5);
  const Tensor x = Tensor::Uniform({DType::kF32, Shape({100003})}, 0.01, 3, random);
  for (const UnaryCase& c : Cases()) {
    const Tensor one = WithThreads(1, [&] { return c.op(x); });
    const Tensor three = WithThreads(3, [&] { return c.op(x); });
    EXPECT_TRUE(BitEqual(one, three)) << c.name;
  }
}

TEST(Unary, RoundsNarrowFloatsOnceFromF32) {
  Random random(9);
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor x = Tensor::Uniform({dtype, Shape({1031})}, 0.05, 2, random);
    const Tensor wide = Tensor::FromDoubles(x.ToDoubles(), {DType::kF32, x.shape()});
    for (const UnaryCase& c : Cases()) {
      const Tensor want = Tensor::FromDoubles(c.op(wide).ToDoubles(), x.spec());
      EXPECT_TRUE(BitEqual(c.op(x), want)) << c.name << " " << Name(dtype);
    }
  }
}

TEST(Unary, OnMetaHasSizesOnly) {
  const Tensor y = Gelu(Tensor::Empty({DType::kBF16, Shape({1 << 20, 1 << 20})}, kMeta));
  EXPECT_EQ(y.spec().ToString(), "bf16[1048576,1048576]");
}

TEST(Unary, NamesTheCastThatAnIntegerNeeds) {
  const Tensor x = Tensor::Zeros({DType::kI64, Shape({2, 3})});
  try {
    Exp(x);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "exp: wants f64, f32, bf16 or f16; Cast(x, f32) would fit: x is i64[2,3]");
  }
}

}  // namespace
}  // namespace tally
