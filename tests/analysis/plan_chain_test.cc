// The dynamic programme over chains against published numbers and against exhaustive search.
#include "tally/analysis/plan_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "chain_graphs.h"
#include "gpt_step.h"
#include "plan_oracle.h"
#include "tally/analysis/chain.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/simulate.h"
#include "tally/ops/reduce.h"
#include "tally/ops/update.h"

namespace tally {
namespace {

using testing::HasSubstr;

PlanPrice Price(const Graph& graph, const Plan& plan) {
  const absl::StatusOr<PlanPrice> price = PricePlan(graph, plan);
  EXPECT_TRUE(price.ok()) << plan.name << ": " << price.status();
  return price.value_or(PlanPrice{});
}

using Front = std::vector<OraclePoint>;

// Every point's plan is priced: the dynamic programme may not differ from the simulator by a byte.
Front FrontOf(const CostedGraph& chain, ChainMoves moves) {
  const absl::StatusOr<ChainCurve> curve = ChainCurve::Make(chain.graph, chain.costs, moves);
  EXPECT_TRUE(curve.ok()) << curve.status();
  Front front;
  if (!curve.ok()) return front;
  for (size_t i = 0; i < curve->points().size(); ++i) {
    const Plan plan = curve->PlanAt(i);
    front.push_back(
        {Price(chain.graph, plan).peak_bytes, ExtraCost(chain.graph, plan, chain.costs)});
    EXPECT_EQ(front.back().peak_bytes, curve->points()[i].peak_bytes);
    EXPECT_EQ(front.back().extra_cost, curve->points()[i].extra_cost);
  }
  return front;
}
Front InUnits(std::map<int64_t, double> entries) {
  Front front;
  for (const auto& [units, cost] : entries) front.push_back({units * kUnitBytes, cost});
  return front;
}

TEST(ChainCurve, KnowsWhenDroppingABoundaryPays) {
  // Model M2. Published: least extra of all schedules, and of those that keep what they stored.
  const CostedGraph l3a1 = EqualLayers(3, 1), l3a2 = EqualLayers(3, 2);
  const CostedGraph l4a1 = EqualLayers(4, 1), l4a2 = EqualLayers(4, 2);
  EXPECT_EQ(FrontOf(l3a1, ChainMoves::kTrue), InUnits({{5, 3}, {6, 1}, {8, 0}}));
  EXPECT_EQ(FrontOf(l3a1, ChainMoves::kPersistent), InUnits({{5, 3}, {6, 2}, {7, 1}, {8, 0}}));
  EXPECT_EQ(FrontOf(l3a2, ChainMoves::kTrue), InUnits({{6, 3}, {7, 2}, {8, 1}, {11, 0}}));
  EXPECT_EQ(FrontOf(l3a2, ChainMoves::kPersistent), InUnits({{6, 3}, {7, 2}, {9, 1}, {11, 0}}));
  EXPECT_EQ(FrontOf(l4a1, ChainMoves::kTrue), InUnits({{5, 6}, {6, 3}, {7, 2}, {8, 1}, {10, 0}}));
  EXPECT_EQ(FrontOf(l4a1, ChainMoves::kPersistent),
            InUnits({{5, 6}, {6, 3}, {7, 2}, {9, 1}, {10, 0}}));
  EXPECT_EQ(FrontOf(l4a2, ChainMoves::kTrue),
            InUnits({{6, 6}, {7, 4}, {8, 3}, {9, 2}, {11, 1}, {14, 0}}));
  EXPECT_EQ(FrontOf(l4a2, ChainMoves::kPersistent),
            InUnits({{6, 6}, {7, 4}, {8, 3}, {9, 2}, {12, 1}, {14, 0}}));
  for (const CostedGraph* chain : {&l3a1, &l3a2, &l4a1, &l4a2}) {
    EXPECT_EQ(PlanOracle(chain->graph, chain->costs).front(), FrontOf(*chain, ChainMoves::kTrue));
  }
}

// The recurrence as published for Rotor, where what a gradient needs includes the output, at
// integer memory; one gradient counted. Least extra forwards for L equal layers, tape a, memory m.
class Rotor {
 public:
  Rotor(int layers, int tape) : tape_(tape), layers_(layers) {}
  double Extra(int m) {
    // The loss is stage L + 1 and costs nothing.
    return Cost(1, layers_ + 1, m - 1) - layers_;
  }

 private:
  double Forward(int s) const { return s <= layers_ ? 1 : 0; }
  int Kept(int s) const { return s <= layers_ ? 1 + tape_ : 0; }
  int Size(int s) const { return s <= layers_ ? 1 : 0; }
  double Cost(int s, int t, int m) {
    constexpr double kNone = 1e9;
    if (m < 0) return kNone;
    const auto [it, fresh] = known_.try_emplace({s, t, m}, kNone);
    if (!fresh) return it->second;
    double best = kNone;
    const int leaf = std::max(Size(s) + Kept(s), Size(s - 1) + Kept(s));
    if (s == t) {
      if (m >= leaf) best = Forward(s);
    } else {
      if (m >= leaf) best = Forward(s) + Cost(s + 1, t, m - Kept(s));
      int way = Size(t) + Size(s);
      double steps = 0;
      for (int k = s + 1; k <= t; ++k) {
        steps += Forward(k - 1);
        if (k > s + 1) way = std::max(way, Size(t) + Size(k - 2) + Size(k - 1));
        if (m < way) break;
        best = std::min(best, steps + Cost(k, t, m - Size(k - 1)) + Cost(s, k - 1, m));
      }
    }
    return known_[{s, t, m}] = best;
  }

  const int tape_, layers_;
  std::map<std::tuple<int, int, int>, double> known_;
};

// The published recurrence's least extra forwards by memory; between two entries the former holds,
// below the first there is no plan.
struct RotorRow {
  int layers, tape;
  std::map<int, double> extra;
};

TEST(ChainCurve, IsNeverWorseThanRotor) {
  const std::vector<RotorRow> table = {
      {4, 0, {{4, 5}, {5, 2}, {6, 0}}},
      {4, 1, {{5, 6}, {6, 3}, {7, 2}, {9, 1}, {10, 0}}},
      {4, 3, {{7, 6}, {8, 4}, {9, 3}, {11, 2}, {15, 1}, {18, 0}}},
      {9, 0, {{4, 35}, {5, 13}, {6, 7}, {7, 5}, {8, 4}, {9, 3}, {10, 2}, {11, 0}}},
      {9,
       1,
       {{5, 36},
        {6, 16},
        {7, 11},
        {8, 8},
        {9, 7},
        {10, 6},
        {12, 5},
        {13, 4},
        {15, 3},
        {17, 2},
        {19, 1},
        {20, 0}}},
      {10, 0, {{4, 44}, {5, 16}, {6, 9}, {7, 7}, {8, 5}, {9, 4}, {10, 3}, {11, 2}, {12, 0}}},
      {10,
       1,
       {{5, 45},
        {6, 20},
        {7, 14},
        {8, 10},
        {9, 8},
        {10, 7},
        {12, 6},
        {13, 5},
        {15, 4},
        {17, 3},
        {19, 2},
        {21, 1},
        {22, 0}}}};
  for (const RotorRow& row : table) {
    Rotor rotor(row.layers, row.tape);
    EXPECT_GT(rotor.Extra(row.extra.begin()->first - 1), 1e6);
    for (int m = row.extra.begin()->first; m <= row.extra.rbegin()->first + 2; ++m) {
      EXPECT_EQ(rotor.Extra(m), std::prev(row.extra.upper_bound(m))->second)
          << row.layers << " layers, tape " << row.tape << ", memory " << m;
    }
  }
  for (const int layers : {4, 9, 10}) {
    for (const int tape : {0, 1, 3}) {
      ChainLayer layer;
      layer.reads_out = true;
      if (tape > 0) layer.tape = {tape};
      const CostedGraph chain = LayerGraph(std::vector<ChainLayer>(layers, layer));
      const Front front = FrontOf(chain, ChainMoves::kPersistent);
      Rotor rotor(layers, tape);
      for (int m = 4; m <= layers * (1 + tape) + 2; ++m) {
        const double published = rotor.Extra(m);
        if (published > 1e6) continue;
        // Both gradients counted, every M is one higher.
        double ours = 1e9;
        for (const OraclePoint& p : front) {
          if (p.peak_bytes <= (m + 1) * kUnitBytes) ours = p.extra_cost;
        }
        EXPECT_LE(ours, published) << layers << " layers, tape " << tape << ", memory " << m;
      }
    }
  }
}

// Random layers; all alike when `equal`.
CostedGraph RandomChain(std::mt19937& random, bool equal, bool reads_out) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  const auto layer = [&] {
    ChainLayer made;
    made.x = pick(1, 4);
    made.gradient = pick(0, 4);
    if (pick(0, 3) > 0) made.tape = {pick(1, 4)};
    made.cost = static_cast<double>(pick(1, 4));
    made.weights = pick(0, 2);
    made.reads_out = reads_out;
    return made;
  };
  std::vector<ChainLayer> layers(pick(2, 4), layer());
  for (ChainLayer& other : layers) {
    if (!equal) other = layer();
  }
  return LayerGraph(layers, pick(1, 3), pick(0, 2));
}

TEST(ChainCurve, IsTheOptimumOnEqualLayers) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const CostedGraph chain = RandomChain(random, true, round % 2 == 1);
    EXPECT_EQ(FrontOf(chain, ChainMoves::kTrue), PlanOracle(chain.graph, chain.costs).front());
  }
}

// Where layers differ no planner is below the optimum, and the dynamic programme rarely above it.
TEST(ChainPlans, AreNeverBelowTheOptimum) {
  std::mt19937 random(2);
  int exact = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    const CostedGraph chain = RandomChain(random, false, false);
    const PlanOracle oracle(chain.graph, chain.costs);
    const Front front = FrontOf(chain, ChainMoves::kTrue);
    exact += front == oracle.front();
    std::vector<Plan> plans = {PlanNone(chain.graph),       PlanSqrt(chain.graph),
                               PlanUniform(chain.graph, 1), PlanTriangular(chain.graph),
                               PlanLog(chain.graph),        PlanRevolve(chain.graph, 2)};
    for (const Plan& plan : ChainFront(chain.graph, chain.costs, ChainMoves::kPersistent)) {
      plans.push_back(plan);
    }
    for (const Plan& plan : ChainFront(chain.graph, chain.costs, ChainMoves::kTrue)) {
      plans.push_back(plan);
    }
    double best = 1e9;  // of the dynamic programme within the same peak
    for (const Plan& plan : plans) {
      const int64_t peak = Price(chain.graph, plan).peak_bytes;
      const double extra = ExtraCost(chain.graph, plan, chain.costs);
      EXPECT_GE(extra, oracle.Cost(peak).value_or(1e9)) << plan.name;
      best = 1e9;
      for (const OraclePoint& p : front) {
        if (p.peak_bytes <= peak) best = p.extra_cost;
      }
      EXPECT_LE(best, extra) << plan.name;
    }
    EXPECT_EQ(front.front().peak_bytes, oracle.floor());
  }
  EXPECT_GT(exact, kRounds * 9 / 10);
}

// On chains as short as these the exact search ends: every budget gets the proven optimum.
TEST(PlanChain, IsTheOptimumOnShortChains) {
  std::mt19937 random(3);
  int lent = 0;  // cheaper than every plan of the class
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    const CostedGraph chain = RandomChain(random, false, round % 3 == 2);
    const ChainCurve curve = *ChainCurve::Make(chain.graph, chain.costs, ChainMoves::kTrue);
    const Front front = PlanOracle(chain.graph, chain.costs).front();
    for (const OraclePoint& p : front) {
      const PlanAnswer answer =
          *PlanChain(chain.graph, chain.costs, p.peak_bytes, ChainMoves::kTrue);
      ASSERT_EQ(answer.kind, PlanAnswer::kPlan);
      ASSERT_EQ(ExtraCost(chain.graph, answer.plan, chain.costs), p.extra_cost);
      ASSERT_LE(answer.price.peak_bytes, p.peak_bytes);
      ASSERT_TRUE(answer.optimal);
      double of_class = 1e9;
      for (const ChainPoint& point : curve.points()) {
        if (point.peak_bytes <= p.peak_bytes) of_class = point.extra_cost;
      }
      lent += of_class > p.extra_cost;
    }
    const PlanAnswer below =
        *PlanChain(chain.graph, chain.costs, front.front().peak_bytes - 1, ChainMoves::kTrue);
    ASSERT_EQ(below.kind, PlanAnswer::kInfeasible);
    ASSERT_GE(below.best, front.front().peak_bytes);
  }
  EXPECT_GT(lent, 0);
}

TEST(PlanChain, HonoursEveryBudgetAndIsMonotone) {
  // Budgets between the least peak and store-all, where others have measured 1145, 508, 275, 325
  // and 411 MB for rising budgets.
  const CostedGraph chain = EqualLayers(32, 3);
  const int64_t all = Price(chain.graph, PlanNone(chain.graph)).peak_bytes;
  double last = 1e9;
  for (int64_t budget = 7 * kUnitBytes; budget <= all; budget += (all - 7 * kUnitBytes) / 50) {
    const absl::StatusOr<PlanAnswer> answer =
        PlanChain(chain.graph, chain.costs, budget, ChainMoves::kTrue);
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->kind, PlanAnswer::kPlan) << budget;
    EXPECT_LE(answer->price.peak_bytes, budget);
    const double extra = ExtraCost(chain.graph, answer->plan, chain.costs);
    EXPECT_LE(extra, last);
    last = extra;
  }
}

TEST(PlanChain, FindsNothingBelowTheLeastPeak) {
  const CostedGraph chain = EqualLayers(4, 1);
  const absl::StatusOr<PlanAnswer> least =
      PlanChain(chain.graph, chain.costs, 5 * kUnitBytes, ChainMoves::kTrue);
  ASSERT_TRUE(least.ok());
  EXPECT_EQ(least->kind, PlanAnswer::kPlan);
  const absl::StatusOr<PlanAnswer> below =
      PlanChain(chain.graph, chain.costs, 5 * kUnitBytes - 1, ChainMoves::kTrue);
  ASSERT_TRUE(below.ok());
  // The gradient of a layer holds two boundaries, a tape and two gradients: 5 units in any plan.
  EXPECT_EQ(below->kind, PlanAnswer::kInfeasible);
  EXPECT_EQ(below->bound, 5 * kUnitBytes);
  EXPECT_NE(below->node, kNone);
  EXPECT_EQ(below->best, 5 * kUnitBytes);
}

TEST(PlanChain, TakesAThousandEqualLayers) {
  // At the peak of the triangular plan, 46 units, which reruns 992 layers.
  const CostedGraph chain = EqualLayers(1000, 0, 0);
  const absl::StatusOr<PlanAnswer> answer =
      PlanChain(chain.graph, chain.costs, 46 * kUnitBytes, ChainMoves::kTrue);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->kind, PlanAnswer::kPlan);
  EXPECT_LE(answer->price.extra_nodes, 992);
}

// A recorded GPT: every point of the curve has the price that was foreseen.
TEST(ChainCurve, IsExactOnARecordedModel) {
  const Graph graph =
      GptStep(
          {.batch = 2, .seq = 16, .context = 16, .vocab = 40, .layers = 6, .width = 16, .heads = 2})
          .Record();
  const LayerChain chain = *FindChain(graph);
  EXPECT_TRUE(chain.by_blocks);
  EXPECT_EQ(chain.passes[0].stages.size(), 8u);  // the embedding, 6 blocks, the head
  const CostedGraph costed{graph, FlopCosts(graph)};
  const Front front = FrontOf(costed, ChainMoves::kTrue);
  EXPECT_GT(front.size(), 5u);
  EXPECT_EQ(front.back().extra_cost, 0);
  EXPECT_EQ(front.back().peak_bytes, Price(graph, PlanNone(graph)).peak_bytes);
  for (const Plan& plan : {PlanUniform(graph, 2), PlanTriangular(graph), PlanLog(graph),
                           PlanRevolve(graph, 3), PlanRevolve(graph, 1)}) {
    EXPECT_GE(Price(graph, plan).peak_bytes, front.front().peak_bytes) << plan.name;
  }
}

// What the optimizer writes after backward may be read again before that.
TEST(ChainCurve, IsExactWithAnOptimizer) {
  std::vector<Tensor> params;
  const int64_t width = 8;
  for (int i = 0; i < 4; ++i) {
    params.push_back(Tensor::Zeros({DType::kF32, {width, width}}, kMeta));
    Declare(params.back(), Origin::kParameter, "h." + std::to_string(i) + ".weight");
  }
  Graph graph;
  {
    Tape tape;
    tape.Watch(params);
    Tensor x = Tensor::Zeros({DType::kF32, {64, width}}, kMeta);
    for (int i = 0; i < 4; ++i) {
      const Scope scope("h." + std::to_string(i));
      x = Add(x, GeluTanh(Linear(x, params[i])));
    }
    const Tensor loss = Sum(x);
    const Tensors grads = tape.Gradient(loss, params);
    const ScopedPhase phase(Phase::kOptimizer);
    for (int i = 0; i < 4; ++i) AddInPlace(params[i], grads[i]);
    graph = tape.Finish();
  }
  const CostedGraph costed{graph, FlopCosts(graph)};
  const Front front = FrontOf(costed, ChainMoves::kTrue);
  EXPECT_GT(front.size(), 2u);
  EXPECT_EQ(front.back().peak_bytes, Price(graph, PlanNone(graph)).peak_bytes);
}

TEST(FindChain, SaysWhatIsNoChain) {
  const Graph forward =
      GptStep(
          {.batch = 1, .seq = 8, .context = 8, .vocab = 16, .layers = 2, .width = 8, .heads = 1})
          .Record(/*forward_only=*/true);
  EXPECT_THAT(std::string(FindChain(forward).status().message()), HasSubstr("no backward"));
  const Plan plan = PlanTriangular(forward);
  EXPECT_EQ(plan.name, "triangular");
  EXPECT_THAT(plan.note, HasSubstr("no backward"));
  EXPECT_EQ(plan.steps, PlanNone(forward).steps);
}

TEST(FindChain, CutsARecordWithoutBlocksWhereOneValueCrosses) {
  CostedGraph chain = EqualLayers(6, 0);
  for (Node& node : chain.graph.nodes) node.scope = 0;
  const absl::StatusOr<LayerChain> found = FindChain(chain.graph);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->by_blocks);
  EXPECT_THAT(found->note, HasSubstr("articulation points"));
  EXPECT_EQ(FrontOf(chain, ChainMoves::kTrue), FrontOf(EqualLayers(6, 0), ChainMoves::kTrue));
  EXPECT_LT(Price(chain.graph, PlanUniform(chain.graph, 2)).peak_bytes, 8 * kUnitBytes);
}

}  // namespace
}  // namespace tally
