#include "tally/io/plan_maker.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/io/plan_name.h"
#include "tally/tests/analysis/gpt_step.h"

namespace tally {
namespace {

Graph SmallGpt(bool forward_only = false) {
  return GptStep({.seq = 16, .context = 16, .vocab = 64, .layers = 4, .width = 32, .heads = 2})
      .Record(forward_only);
}

TEST(PlanMakerTest, MakesAValidPlanOfEachPlanner) {
  const Graph graph = SmallGpt();
  const int64_t none = PriceValidPlan(graph, PlanNone(graph)).peak_bytes;
  PlanMaker maker(graph, FlopCosts(graph), none);
  std::set<PlanSpec::Kind> kinds;
  for (const PlanSpec& spec : maker.All()) {
    kinds.insert(spec.kind);
    const absl::StatusOr<PlanAnswer> answer = maker.Make(spec);
    ASSERT_TRUE(answer.ok()) << PlanName(spec) << answer.status();
    ASSERT_EQ(answer->kind, PlanAnswer::kPlan) << PlanName(spec);
    EXPECT_EQ(answer->plan.name, PlanName(spec));
    // What it says of the plan is what the simulator does, of a plan that validates.
    const absl::StatusOr<PlanPrice> price = PricePlan(graph, answer->plan);
    ASSERT_TRUE(price.ok()) << price.status();
    EXPECT_EQ(price->peak_bytes, answer->price.peak_bytes);
    if (HasBudget(spec)) {
      EXPECT_LE(price->peak_bytes, none) << PlanName(spec);
    }
  }
  // All of them but those whose bytes, or whose file, somebody has to name.
  EXPECT_EQ(kinds.size(), PlanForms().size() - 2);
  EXPECT_EQ(kinds.count(PlanSpec::kOptimal), 0u);
  EXPECT_EQ(kinds.count(PlanSpec::kFile), 0u);
}

TEST(PlanMakerTest, KeepsToEachBudgetAndNeverPaysMoreForAGreaterOne) {
  const Graph graph = SmallGpt();
  const NodeCosts costs = FlopCosts(graph);
  PlanMaker maker(graph, costs);
  const int64_t none = PriceValidPlan(graph, PlanNone(graph)).peak_bytes;
  const int64_t floor = maker.front()->floor.bytes;
  ASSERT_LT(floor, none);
  double last = -1;
  int plans = 0;
  for (int i = 50; i >= 0; --i) {
    const int64_t budget = floor + (none - floor) * i / 50;
    const PlanAnswer answer =
        ValueOrThrow(maker.Make({.kind = PlanSpec::kOptimal, .number = budget}));
    if (answer.kind != PlanAnswer::kPlan) {
      EXPECT_EQ(answer.kind, PlanAnswer::kNotFound);  // at the floor and above nothing is proven
      EXPECT_GT(answer.best, budget);
      continue;
    }
    ++plans;
    EXPECT_LE(ValueOrThrow(PricePlan(graph, answer.plan)).peak_bytes, budget);
    const double extra = ExtraCost(graph, answer.plan, costs);
    EXPECT_GE(extra, last) << budget;  // budgets fall
    EXPECT_LE(answer.cheapest, extra);
    last = extra;
  }
  EXPECT_GT(plans, 10);
  EXPECT_GT(last, 0);
  const PlanAnswer below =
      ValueOrThrow(maker.Make({.kind = PlanSpec::kOptimal, .number = floor - 1}));
  EXPECT_EQ(below.kind, PlanAnswer::kInfeasible);
  EXPECT_EQ(below.bound, floor);
  EXPECT_NE(below.node, kNone);
}

TEST(PlanMakerTest, WantsToKnowTheMemoryOfFit) {
  const Graph graph = SmallGpt();
  EXPECT_EQ(PlanMaker(graph, FlopCosts(graph)).Make({.kind = PlanSpec::kFit}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PlanMakerTest, HasNothingToDoWhereNoBackwardWasRecorded) {
  const Graph graph = SmallGpt(/*forward_only=*/true);
  PlanMaker maker(graph, FlopCosts(graph), int64_t{1} << 40);
  for (const PlanSpec& spec : maker.All()) {
    const absl::StatusOr<PlanAnswer> answer = maker.Make(spec);
    if (answer.status().code() == absl::StatusCode::kFailedPrecondition) continue;  // no chain
    ASSERT_TRUE(answer.ok()) << PlanName(spec) << answer.status();
    EXPECT_EQ(answer->price.extra_nodes, 0) << PlanName(spec);
  }
}

}  // namespace
}  // namespace tally
