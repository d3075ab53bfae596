// What the literature of checkpointing publishes, and what others' issues ask for, that the tests
// of the single planners do not show.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "chain_graphs.h"
#include "plan_oracle.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/plan_front.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/simulate.h"
#include "tally/tests/small_stack.h"

namespace tally {
namespace {

// 32 layers with a tape of 3: each budget from the floor to store-all. Others' proxies are monotone
// there and their peaks are not: 1,145, 508, 275, 325 and 411 MB for rising budgets.
TEST(PlanChain, HonoursEveryByteOfAChainsBudgets) {
  const CostedGraph chain = EqualLayers(32, 3);
  const int64_t all = PriceValidPlan(chain.graph, PlanNone(chain.graph)).peak_bytes;
  EXPECT_EQ(all, (32 * (1 + 3) + 2) * kUnitBytes);  // M2
  const ChainCurve curve = *ChainCurve::Make(chain.graph, chain.costs, ChainMoves::kTrue);
  // A layer's working set: its input, its output beside its tape on the way, a gradient.
  ASSERT_EQ(curve.points().front().peak_bytes, 7 * kUnitBytes);
  size_t at = 0;
  double last = 1e9;
  for (int64_t units = 7; units * kUnitBytes <= all; ++units) {
    const int64_t budget = units * kUnitBytes;
    while (at + 1 < curve.points().size() && curve.points()[at + 1].peak_bytes <= budget) ++at;
    const Plan plan = curve.PlanAt(at);
    EXPECT_LE(PriceValidPlan(chain.graph, plan).peak_bytes, budget);
    const double extra = ExtraCost(chain.graph, plan, chain.costs);
    EXPECT_EQ(extra, curve.points()[at].extra_cost);
    EXPECT_LE(extra, last) << units;
    last = extra;
  }
  EXPECT_EQ(last, 0);
}

// Model M2, a = 0, four layers: 5 units take 1 run more, 4 take 3 on two levels.
TEST(PlanChain, CountsNestedRecomputationExactly) {
  const CostedGraph chain = EqualLayers(4, 0);
  const PlanOracle oracle(chain.graph, chain.costs);
  for (const auto& [units, extra] : std::map<int, double>{{4, 3}, {5, 1}, {6, 0}}) {
    const PlanAnswer answer =
        *PlanChain(chain.graph, chain.costs, units * kUnitBytes, ChainMoves::kTrue);
    ASSERT_EQ(answer.kind, PlanAnswer::kPlan) << units;
    EXPECT_EQ(answer.price.extra_nodes, extra);
    EXPECT_EQ(*oracle.Cost(units * kUnitBytes), extra);
    EXPECT_TRUE(answer.optimal);
  }
  EXPECT_EQ(PlanChain(chain.graph, chain.costs, 4 * kUnitBytes - 1, ChainMoves::kTrue)->kind,
            PlanAnswer::kInfeasible);
}

// Model "boundary only", g = 1: c snapshots are c + 3 units and take t(L,c) - (L - 1) runs more,
// no fewer; where gradients read outputs alone, t(L+1,c) - L; where both, c + 4 units. t(l,c) by
// the recurrence.
TEST(ChainCurve, MapsToRevolvesNumbers) {
  const auto t = [](int l, int c) {
    std::vector<std::vector<int64_t>> of(l + 1, std::vector<int64_t>(c + 1, 0));
    for (int n = 2; n <= l; ++n) {
      for (int k = 1; k <= c; ++k) {
        of[n][k] = n * (n - 1) / 2;
        for (int i = 1; i < n && k > 1; ++i)
          of[n][k] = std::min(of[n][k], i + of[i][k] + of[n - i][k - 1]);
      }
    }
    return of[l][c];
  };
  for (const int layers : {2, 3, 4, 5, 6, 16, 24, 40}) {
    for (const auto& [in, out] : {std::pair(true, false), {false, true}, {true, true}}) {
      ChainLayer layer;
      layer.reads_in = in;
      layer.reads_out = out;
      const CostedGraph chain = LayerGraph(std::vector<ChainLayer>(layers, layer));
      const ChainCurve curve = *ChainCurve::Make(chain.graph, chain.costs, ChainMoves::kPersistent);
      for (int c = 1; c <= std::min(layers, 6); ++c) {
        const int64_t budget = (c + (in && out ? 4 : 3)) * kUnitBytes;
        double ours = 1e9;
        for (const ChainPoint& p : curve.points()) {
          if (p.peak_bytes <= budget) ours = p.extra_cost;
        }
        const int64_t published = in ? t(layers, c) - (layers - 1) : t(layers + 1, c) - layers;
        EXPECT_EQ(ours, published) << layers << " layers, " << c << " snapshots, " << in << out;
      }
    }
  }
}

// A published fixture: 1 (0.1) -> 2 (0.2) -> 5 (0.2), 1 alone saved. 0.1 live after forward; on the
// way back 0.1, 0.3, 0.5, 0.3, 0.1, 0. Sizes in tenths; backward reads 5 and 2, then 2, then 1.
TEST(PlanPrice, TracesThePublishedFixture) {
  GraphBuilder b;
  const ValueId start = b.Input(Units(0));
  const ValueId v1 = b.Node(kUnit, {start}, Units(1), {});
  const ValueId v2 = b.Node(kUnit, {v1}, Units(2), {});
  const ValueId v5 = b.Node(kUnit, {v2}, Units(2), {});
  const GraphBuilder::With back = {.phase = Phase::kBackward, .serves = b.last()};
  for (const std::vector<ValueId>& reads : {std::vector{v5, v2}, {v2}, {v1}})
    b.Node(kUnit, reads, Units(0), back);
  for (size_t v = 1; v < b.g.values.size(); ++v) b.Free(static_cast<ValueId>(v));
  const Plan plan = PlanFromRuns(b.g, {0, 1, 2, 1, 2, 3, 4, 5});
  EXPECT_EQ(PriceValidPlan(b.g, plan).peak_bytes, 5 * kUnitBytes);
  std::vector<bool> live(b.g.storages.size(), false);
  std::vector<int64_t> trace;  // where it changes, from the end of forward on
  int runs = 0;
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::kFree) {
      live[step.id] = false;
    } else {
      ++runs;
      for (const ValueId v : b.g.out(b.g.nodes[step.id])) live[b.g.values[v].storage] = true;
    }
    int64_t bytes = 0;
    for (size_t s = 0; s < live.size(); ++s) bytes += live[s] ? b.g.storages[s].bytes : 0;
    if (runs < 3 || (runs == 3 && bytes > 1 * kUnitBytes)) continue;  // forward, and what it frees
    if (trace.empty() || trace.back() != bytes / kUnitBytes) trace.push_back(bytes / kUnitBytes);
  }
  EXPECT_EQ(trace, (std::vector<int64_t>{1, 3, 5, 3, 1, 0}));
}

// The same diamond with its branches recorded in either order: the same front, a hundred times
// over.
TEST(MakePlanFront, DoesNotDependOnTheOrderOfInsertion) {
  const auto record = [](bool swapped) {
    GraphBuilder b;
    const ValueId x = b.Input(Units(1));
    std::vector<ValueId> branch(2);
    std::vector<NodeId> node(2);
    for (int i = 0; i < 2; ++i) {
      const int k = swapped ? 1 - i : i;
      branch[k] = b.Node(kUnit, {x}, Units(3), {.saves = {x}});
      node[k] = b.last();
    }
    const ValueId m = b.Node(kUnit, {branch[0], branch[1]}, Units(1), {});
    const NodeId joined = b.last();
    b.g.loss = b.Node(kUnit, {m}, Units(0), {});
    const ValueId d =
        b.Node(kUnit, {b.g.loss}, Units(1), {.phase = Phase::kBackward, .serves = b.last()});
    const std::vector<ValueId> both = b.Node(kUnit, {branch[0], branch[1], d}, {Units(3), Units(3)},
                                             {.phase = Phase::kBackward, .serves = joined});
    for (int k = 1; k >= 0; --k) {
      b.Node(kUnit, {x, both[k]}, Units(1), {.phase = Phase::kBackward, .serves = node[k]});
    }
    for (size_t v = 1; v < b.g.values.size(); ++v) b.Free(static_cast<ValueId>(v));
    return b.g;
  };
  std::vector<std::tuple<int64_t, double>> first;
  for (int round = 0; round < 100; ++round) {
    const Graph graph = record(round % 2 == 1);
    const PlanFront front = MakePlanFront(graph, FlopCosts(graph), {.work = 20'000});
    std::vector<std::tuple<int64_t, double>> points;
    for (const int32_t i : front.front)
      points.emplace_back(front.points[i].price.peak_bytes, front.points[i].extra_cost);
    if (round == 0) first = points;
    ASSERT_EQ(points, first) << round;
    EXPECT_EQ(front.none().price.peak_bytes, 14 * kUnitBytes);
  }
}

// Seconds instead of FLOPs: layers that cost the same FLOPs but take 5 and 1 ms. What is run again
// are the quick ones.
TEST(MakePlanFront, TradesSecondsToo) {
  std::vector<ChainLayer> layers(6);
  for (size_t i = 0; i < layers.size(); ++i) layers[i].cost = i % 2 == 0 ? 0.005 : 0.001;
  CostedGraph chain = LayerGraph(layers);
  chain.costs.unit = NodeCosts::kSeconds;
  const PlanOracle oracle(chain.graph, chain.costs);
  const PlanFront front = MakePlanFront(chain.graph, chain.costs);
  EXPECT_EQ(front.unit, NodeCosts::kSeconds);
  EXPECT_TRUE(front.complete);
  ASSERT_EQ(front.front.size(), oracle.front().size());
  for (size_t i = 0; i < front.front.size(); ++i) {
    const PlanPoint& point = front.points[front.front[i]];
    EXPECT_EQ(point.price.peak_bytes, oracle.front()[i].peak_bytes);
    EXPECT_NEAR(point.extra_cost, oracle.front()[i].extra_cost, 1e-12);
  }
  // One unit below store-all, one of the quick layers runs again.
  const PlanAnswer answer = Optimal(front, front.none().price.peak_bytes - 1);
  ASSERT_EQ(answer.kind, PlanAnswer::kPlan);
  EXPECT_NEAR(ExtraCost(chain.graph, answer.plan, chain.costs), 0.001, 1e-12);
  EXPECT_TRUE(answer.optimal);
}

// All planners on a long chain: nothing recurses as deep as it.
TEST(MakePlanFront, TakesAThousandLayersOnASmallStack) {
  OnASmallStack([] {
    const CostedGraph chain = EqualLayers(1000, 0);
    const PlanFront front =
        MakePlanFront(chain.graph, chain.costs, {.budgets = 1, .work = 100'000});
    EXPECT_LT(front.points[front.front[0]].price.peak_bytes, 40 * kUnitBytes);
    EXPECT_EQ(front.points[front.front.back()].extra_cost, 0);
  });
}

// L = 3 layers as long as 4 are asked for: clamped, as every length above the number of blocks.
TEST(Uniform, TakesMoreThanThereAre) {
  const Graph graph = UnitChain(3, 0);
  EXPECT_EQ(PriceValidPlan(graph, PlanUniform(graph, 4)).peak_bytes,
            PriceValidPlan(graph, PlanNone(graph)).peak_bytes);
}

}  // namespace
}  // namespace tally
