#include "tally/ops/unary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"

#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/unary_cases.h"

namespace tally {
namespace {

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

TEST(Unary, IsWithinThreeUlpOfLibmWhereTheFunctionIsElementary) {
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
