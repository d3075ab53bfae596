#include "tally/io/plan_maker.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_rank.h"
#include "tally/analysis/plan_selective.h"
#include "tally/analysis/simulate.h"
#include "tally/io/plan_name.h"
#include "tally/io/plan_text.h"
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

// At budgets between the floor and no plan, asked in either order.
TEST(PlanMakerTest, NeverPaysMoreForOptimalThanForSearchAtItsBudget) {
  const Graph graph = SmallGpt();
  const NodeCosts costs = FlopCosts(graph);
  const int64_t none = PriceValidPlan(graph, PlanNone(graph)).peak_bytes;
  const int64_t floor = FindFloor(graph).bytes;
  std::vector<PlanSpec> specs;
  for (int i = 3; i <= 5; ++i)
    specs.push_back({.kind = PlanSpec::kOptimal, .number = floor + (none - floor) * i / 6});
  PlanMaker maker(graph, costs), backwards(graph, costs);
  maker.Expect(specs);
  std::reverse(specs.begin(), specs.end());
  backwards.Expect(specs);
  double last = 0;
  int plans = 0;
  for (PlanSpec spec : specs) {  // budgets fall
    const PlanAnswer optimal = ValueOrThrow(maker.Make(spec));
    const PlanAnswer same = ValueOrThrow(backwards.Make(spec));
    spec.kind = PlanSpec::kSearch;
    const PlanAnswer search = ValueOrThrow(maker.Make(spec));
    ASSERT_EQ(optimal.kind, same.kind);
    if (search.kind != PlanAnswer::kPlan) continue;
    ASSERT_EQ(optimal.kind, PlanAnswer::kPlan) << spec.number;
    ++plans;
    const double extra = ExtraCost(graph, optimal.plan, costs);
    EXPECT_LE(extra, ExtraCost(graph, search.plan, costs)) << spec.number;
    EXPECT_GE(optimal.cheapest, std::min(extra, search.cheapest)) << "a bound that search has";
    EXPECT_GE(extra, last) << spec.number;
    EXPECT_EQ(optimal.plan.steps.size(), same.plan.steps.size());
    EXPECT_EQ(extra, ExtraCost(graph, same.plan, costs));
    last = extra;
  }
  EXPECT_GE(plans, 2);
  EXPECT_GT(last, 0);
}

// Parameters and gradients of 8 ranks, split by stage 3 and 2; the step has no optimizer.
TEST(PlanMakerTest, FitsARankInWhatItDoesNotHold) {
  const Graph graph = SmallGpt();
  const NodeCosts costs = FlopCosts(graph);
  int64_t parameters = 0;
  for (const StorageRecord& storage : graph.storages)
    parameters += storage.origin == Origin::kParameter ? storage.bytes : 0;
  const int64_t none = PriceValidPlan(graph, PlanNone(graph)).peak_bytes;
  const PlanFront front = MakePlanFront(graph, costs);
  for (int stage = 0; stage <= 3; ++stage) {
    const ZeroOptions ranks{.ranks = 8, .stage = stage};
    const int64_t split = SplitBytes(graph, ranks);
    EXPECT_GE(split, parameters * std::max(stage - 1, 0)) << stage;
    std::vector<int64_t> peaks;
    for (const PlanPoint& point : front.points) {
      peaks.push_back(ApplyZero(graph, point.plan, ranks).peak_bytes);
      EXPECT_LE(point.price.peak_bytes - peaks.back(), split) << point.plan.name;
    }
    const int64_t rank_none = peaks[0], least = *std::min_element(peaks.begin(), peaks.end());
    double last = -1;
    for (int i = 2; i >= 0; --i) {  // budgets fall
      const int64_t budget = least + (rank_none - least) * i / 2;
      // Of one front, the cheapest that fits, by looking at them all.
      const PlanAnswer answer = OptimalOnRank(graph, front, ranks, budget);
      ASSERT_EQ(answer.kind, PlanAnswer::kPlan) << stage << ' ' << budget;
      EXPECT_LE(ApplyZero(graph, answer.plan, ranks).peak_bytes, budget);
      EXPECT_EQ(answer.price.extra_nodes == 0, i == 2) << "what fits without a plan takes none";
      double cheapest = std::numeric_limits<double>::infinity();
      for (size_t p = 0; p < peaks.size(); ++p) {
        if (peaks[p] <= budget) cheapest = std::min(cheapest, front.points[p].extra_cost);
      }
      EXPECT_EQ(ExtraCost(graph, answer.plan, costs), cheapest);
      EXPECT_GE(cheapest, last);
      EXPECT_LE(answer.cheapest, cheapest);
      last = cheapest;
    }
    // Where parameters are split, a rank needs no plan in what is too little for one device.
    if (stage == 3) {
      EXPECT_LT(rank_none, none);
    }
    const PlanAnswer refused = OptimalOnRank(graph, front, ranks, 1);
    EXPECT_EQ(refused.kind, PlanAnswer::kInfeasible);
    EXPECT_EQ(refused.best, least);
    EXPECT_LE(refused.bound, least);
    EXPECT_GE(refused.bound, stage == 3 ? parameters / 8 : parameters);
    if (stage != 3) continue;
    PlanMaker maker(graph, costs, (least + rank_none) / 2, ranks);
    const PlanAnswer fit = ValueOrThrow(maker.Make({.kind = PlanSpec::kFit}));
    ASSERT_EQ(fit.kind, PlanAnswer::kPlan);
    EXPECT_LE(ApplyZero(graph, fit.plan, ranks).peak_bytes, (least + rank_none) / 2);
    EXPECT_THAT(fit.plan.note, testing::HasSubstr("a rank's peak under it is"));
  }
}

TEST(PlanMakerTest, ReadsAPlanFromAFile) {
  const Graph graph = SmallGpt();
  PlanMaker maker(graph, FlopCosts(graph));
  const PlanAnswer made = ValueOrThrow(maker.Make({.kind = PlanSpec::kUniform, .number = 2}));
  const std::string path = testing::TempDir() + "tally_plan_maker.plan";
  for (std::string text : {PlanText(graph, made.plan), PlanJsonText(graph, made.plan)}) {
    std::ofstream(path, std::ios::binary) << text;
    const PlanAnswer read = ValueOrThrow(maker.Make(ValueOrThrow(ParsePlanName("@" + path))));
    EXPECT_EQ(read.plan.steps, made.plan.steps);
    EXPECT_EQ(read.plan.name, "@" + path);
    EXPECT_EQ(read.price.peak_bytes, made.price.peak_bytes);
    EXPECT_EQ(read.plan.note, "plan uniform:2 of the file");
  }
  const std::string text = PlanText(graph, made.plan);
  std::ofstream(path, std::ios::binary) << text << "run 1000000 linear\n";
  const absl::Status bad = maker.Make({.kind = PlanSpec::kFile, .word = path}).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kDataLoss);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_THAT(std::string(bad.message()),
              testing::StartsWith(absl::StrCat(path, ": plan text: line ", lines + 1, ": ")));
  std::remove(path.c_str());
  EXPECT_EQ(maker.Make({.kind = PlanSpec::kFile, .word = path}).status().code(),
            absl::StatusCode::kDataLoss);
}

// What mincut:BYTES bounds is not the peak: where a cut does not lower it, nothing runs again. With
// many rows in the tied embedding the peak is at its two gradients, when nothing is kept any more.
TEST(PlanMakerTest, ACutThatLowersNoPeakIsNone) {
  const Graph rows =
      GptStep({.seq = 4, .context = 4, .vocab = 4096, .layers = 1, .width = 8, .heads = 1})
          .Record();
  const Graph deep = SmallGpt();
  for (const Graph* graph : {&rows, &deep}) {
    PlanMaker maker(*graph, FlopCosts(*graph));
    const int64_t none = PriceValidPlan(*graph, PlanNone(*graph)).peak_bytes;
    const int64_t half = BoundaryBytes(*graph, PlanNone(*graph)) / 2;
    const Plan cut = PlanMinCut(*graph, FlopCosts(*graph), half).plan;
    ASSERT_GT(PriceValidPlan(*graph, cut).extra_nodes, 0);
    EXPECT_EQ(PriceValidPlan(*graph, cut).peak_bytes < none, graph == &deep);
    const PlanAnswer made = *maker.Make({.kind = PlanSpec::kMinCut, .number = half});
    EXPECT_EQ(made.price.extra_nodes > 0, graph == &deep);
    if (graph == &deep) continue;
    EXPECT_EQ(made.price.peak_bytes, none);
    EXPECT_THAT(made.plan.note, testing::HasSubstr("where backward begins lowers no peak"));
  }
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
