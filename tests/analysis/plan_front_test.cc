#include "tally/analysis/plan_front.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "dag_graphs.h"
#include "gpt_step.h"
#include "gtest/gtest.h"
#include "tally/analysis/plan_problem.h"
#include "tally/analysis/plan_search.h"

namespace tally {
namespace {

constexpr int64_t kBytes = DagBuilder::kUnit;

// Every point is a plan that can be run and that costs what it says.
void ExpectHonest(const Graph& graph, const NodeCosts& costs, const PlanFront& front) {
  for (const PlanPoint& point : front.points) {
    const absl::StatusOr<PlanPrice> price = PricePlan(graph, point.plan);
    ASSERT_TRUE(price.ok()) << point.plan.name << ": " << price.status();
    EXPECT_EQ(price->peak_bytes, point.price.peak_bytes);
    EXPECT_EQ(ExtraCost(graph, point.plan, costs), point.extra_cost);
    EXPECT_GE(price->peak_bytes, front.floor.bytes) << point.plan.name;
    EXPECT_LE(front.CheapestWithin(price->peak_bytes), point.extra_cost * (1 + 1e-9));
  }
  for (size_t i = 1; i < front.front.size(); ++i) {
    const PlanPoint &a = front.points[front.front[i - 1]], &b = front.points[front.front[i]];
    EXPECT_LT(a.price.peak_bytes, b.price.peak_bytes);
    EXPECT_GT(a.extra_cost, b.extra_cost);
  }
}

struct Budget {
  int64_t units;
  double extra_cost;
};

// The published optimum at each budget, and that there is none below the last.
void ExpectOptima(const Graph& graph, const NodeCosts& costs, const std::vector<Budget>& optima) {
  const PlanFront front = MakePlanFront(graph, costs);
  ExpectHonest(graph, costs, front);
  EXPECT_TRUE(front.complete);
  for (const Budget& b : optima) {
    const PlanAnswer answer = Optimal(front, b.units * kBytes);
    ASSERT_EQ(answer.kind, PlanAnswer::kPlan) << b.units << " units";
    EXPECT_TRUE(answer.optimal);
    EXPECT_EQ(ExtraCost(graph, answer.plan, costs), b.extra_cost) << b.units << " units";
    EXPECT_LE(answer.price.peak_bytes, b.units * kBytes);
    const PlanAnswer searched = PlanSearch(graph, costs, b.units * kBytes);
    ASSERT_EQ(searched.kind, PlanAnswer::kPlan) << b.units << " units";
    EXPECT_EQ(ExtraCost(graph, searched.plan, costs), b.extra_cost) << b.units << " units";
    EXPECT_TRUE(searched.optimal);
  }
  const int64_t floor = optima.back().units * kBytes;
  for (const PlanAnswer& answer :
       {Optimal(front, floor - 1), PlanSearch(graph, costs, floor - 1)}) {
    EXPECT_EQ(answer.kind, PlanAnswer::kInfeasible);
    EXPECT_EQ(answer.bound, floor);
    EXPECT_NE(answer.node, kNone);
  }
}

TEST(PlanFront, HasThePublishedOptimaOfTwoResidualBlocks) {
  NodeCosts costs;
  const Graph graph = TwoResidualBlocks(&costs);
  ExpectOptima(graph, costs, {{7, 0}, {6, 1}, {5, 3}});
}

TEST(PlanFront, HasThePublishedOptimumOfTheDiamond) {
  NodeCosts costs;
  const Graph graph = Diamond(&costs);
  ExpectOptima(graph, costs, {{14, 0}});
  const PlanAnswer answer = Optimal(MakePlanFront(graph, costs), 14 * kBytes - 1);
  EXPECT_EQ(graph.nodes[answer.node].phase, Phase::kBackward);
  EXPECT_EQ(graph.nodes[answer.node].serves, 2) << "the product";
}

// Published as total computations, 2n + 1 of which no plan saves.
TEST(PlanFront, HasThePublishedOptimaOfCheckmatesLinearGraphs) {
  NodeCosts costs;
  Graph graph = CheckmateLinear(2, &costs);
  ExpectOptima(graph, costs, {{4, 5 - 5}, {3, 6 - 5}});
  graph = CheckmateLinear(3, &costs);
  ExpectOptima(graph, costs, {{5, 7 - 7}, {4, 8 - 7}, {3, 10 - 7}});
  graph = CheckmateLinear(4, &costs);
  ExpectOptima(graph, costs, {{6, 9 - 9}, {5, 10 - 9}, {4, 11 - 9}, {3, 15 - 9}});
}

// Views, updates and statistics beside the results: a GPT step with two blocks. From the floor to
// no plan in 50 steps: no peak above its budget, no cost that rises with the budget.
TEST(PlanFront, HonoursEveryBudgetMonotonically) {
  const Graph graph =
      GptStep(
          {.batch = 4, .seq = 32, .context = 32, .vocab = 64, .layers = 4, .width = 32, .heads = 2})
          .Record();
  const NodeCosts costs = FlopCosts(graph);
  const PlanFront front = MakePlanFront(graph, costs, {.budgets = 12, .work = 3'000'000});
  ExpectHonest(graph, costs, front);
  const int64_t most = front.none().price.peak_bytes, least = front.floor.bytes;
  ASSERT_LT(least, most);
  double before = std::numeric_limits<double>::infinity();
  int plans = 0;
  for (int i = 0; i <= 50; ++i) {
    const int64_t budget = least + (most - least) * i / 50;
    const PlanAnswer answer = Optimal(front, budget);
    EXPECT_EQ(answer.bound, least);
    if (answer.kind == PlanAnswer::kNotFound) {
      EXPECT_EQ(plans, 0) << "a plan for a smaller budget was found";
      EXPECT_GT(answer.best, budget);
      continue;
    }
    ASSERT_EQ(answer.kind, PlanAnswer::kPlan);
    ++plans;
    EXPECT_LE(answer.price.peak_bytes, budget);
    const double cost = ExtraCost(graph, answer.plan, costs);
    EXPECT_LE(cost, before);
    EXPECT_LE(answer.cheapest, cost);
    before = cost;
  }
  EXPECT_GT(plans, 35);
  EXPECT_EQ(before, 0) << "what no plan takes costs nothing";
  EXPECT_EQ(Optimal(front, most).plan.name, "none");
  EXPECT_TRUE(Optimal(front, most).optimal);
  const PlanAnswer refused = Optimal(front, least - 1);
  EXPECT_EQ(refused.kind, PlanAnswer::kInfeasible);
  EXPECT_NE(refused.node, kNone);
}

// A chain of values that cost 3, 5 and 7 and take 2, 4 and 1 units, each read by backward.
TEST(WorthOf, PricesEachKeptValueByItself) {
  DagBuilder b;
  const ValueId x = b.Input(1);
  const ValueId v1 = b.Forward({x}, 2, {.cost = 3, .saves = {x}});
  const ValueId v2 = b.Forward({v1}, 4, {.cost = 5, .saves = {v1}});
  const ValueId v3 = b.Forward({v2}, 1, {.cost = 7, .saves = {v2}});
  NodeCosts costs;
  const Graph graph = b.Finish(b.Forward({v3}, 0, {.cost = 0, .saves = {v3}}), &costs);
  const std::vector<KeptWorth> worth = WorthOf(graph, PlanNone(graph), costs);
  // Per unit 7, 3/2 and 5/4.
  ASSERT_EQ(worth.size(), 3u);
  EXPECT_EQ(worth[0].storage, 3);
  EXPECT_EQ(worth[0].extra_cost, 7);
  EXPECT_EQ(worth[0].bytes, 1 * kBytes);
  EXPECT_EQ(worth[1].storage, 1);
  EXPECT_EQ(worth[1].extra_cost, 3);
  EXPECT_EQ(worth[1].bytes, 2 * kBytes);
  EXPECT_EQ(worth[2].storage, 2);
  EXPECT_EQ(worth[2].extra_cost, 5);
  EXPECT_EQ(worth[2].per_byte(), 5.0 / (4 * kBytes));
  // It is read when the third value is made, and next by the gradient of that.
  EXPECT_EQ(worth[2].from, 2);
  EXPECT_EQ(graph.nodes[worth[2].until].serves, 2);
}

// A layer norm makes its result, mean and rstd in one run: dropping any is one rerun, told once.
TEST(WorthOf, TellsWhatOneRerunBringsBackOnce) {
  const Graph graph = GptStep({.layers = 2}).Record();
  const PlanProblem problem(graph);
  const std::vector<KeptWorth> worth = WorthOf(graph, PlanNone(graph), FlopCosts(graph));
  std::set<NodeId> makers;
  int norms = 0;
  for (const KeptWorth& kept : worth) {
    EXPECT_TRUE(makers.insert(problem.maker(kept.storage)).second) << kept.storage;
    int64_t bytes = graph.storages[kept.storage].bytes;
    for (StorageId s : kept.with) {
      EXPECT_EQ(problem.maker(s), problem.maker(kept.storage));
      bytes += graph.storages[s].bytes;
    }
    EXPECT_EQ(kept.bytes, bytes);
    const Node& maker = graph.nodes[problem.maker(kept.storage)];
    if (std::string(maker.op->name) != "layer_norm") continue;
    ++norms;
    EXPECT_GE(kept.with.size(), 1u);
    const Cost cost = CostOf(graph, maker);
    EXPECT_EQ(kept.extra_cost, static_cast<double>(cost.matmul + cost.other + cost.transcendental));
  }
  EXPECT_EQ(norms, 5);  // two a layer and the last
}

}  // namespace
}  // namespace tally
