#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "tally/ops/apply.h"
#include "tally/ops/row_constants.h"
#include "tally/ops/unary.h"
#include "tally/tests/ops/elementwise_helpers.h"
#include "tally/tests/ops/gradient_rule_helpers.h"
#include "tally/tests/ops/unary_cases.h"

namespace tally {
namespace {

using namespace internal;  // NOLINT: the constants of the rows

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

TEST(UnaryGrad, RulesAgreeWithAndWithoutCreateGraph) {
  for (const UnaryCase& c : Cases()) {
    const std::vector<double> x = Sweep(std::max(c.low, -3.0) + 0.01, std::min(c.high, 3.0), 100);
    const std::vector<double> dy = Sweep(-2, 3, 100);
    const OpDef& op = *FindOp(c.name);
    const std::vector<double> fused =
        GradientByRule(op, {F64(x)}, {}, F64(dy), 0, false).ToDoubles();
    const std::vector<double> ops = GradientByRule(op, {F64(x)}, {}, F64(dy), 0, true).ToDoubles();
    for (int i = 0; i < 100; ++i) {
      const double want = dy[i] * c.df(x[i]);
      ASSERT_NEAR(fused[i], want, 1e-11 * (1 + std::fabs(want))) << c.name << " at " << x[i];
      ASSERT_NEAR(ops[i], want, 1e-11 * (1 + std::fabs(want))) << c.name << " at " << x[i];
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

}  // namespace
}  // namespace tally
