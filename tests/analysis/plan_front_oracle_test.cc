// Plans of whole graphs against the true optimum, on random small graphs.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dag_graphs.h"
#include "gtest/gtest.h"
#include "plan_oracle.h"
#include "tally/analysis/plan_front.h"
#include "tally/analysis/plan_problem.h"

namespace tally {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761u + 12345) {}
  int64_t Below(int64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_;
};

// 3 to 6 forward values of random sizes and costs over one or two inputs: skips, joins, forks,
// dead ends and values that only other values need.
Graph RandomDag(uint64_t seed, NodeCosts* costs, bool accumulate = false) {
  Random random(seed);
  DagBuilder b(accumulate);
  std::vector<ValueId> values = {b.Input(1 + random.Below(3))};
  if (random.Below(3) == 0) values.push_back(b.Input(1 + random.Below(3)));
  const int64_t count = 3 + random.Below(4);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t latest = static_cast<int64_t>(values.size()) - 1;
    std::vector<ValueId> in = {values[latest - random.Below(std::min<int64_t>(latest + 1, 2))]};
    const ValueId other = values[random.Below(latest + 1)];
    if (random.Below(2) == 0 && other != in[0]) in.push_back(other);
    DagBuilder::With with{.cost = static_cast<double>(random.Below(4))};
    for (ValueId v : in) {
      if (random.Below(3) > 0) with.saves.push_back(v);
    }
    with.saves_out = random.Below(3) == 0;
    values.push_back(b.Forward(in, 1 + random.Below(4), with));
  }
  return b.Finish(values.back(), costs);
}

// The exact front is the oracle's, point by point; without the exact search no plan is below the
// optimum, no bound above it; and the search finds nearly all of it.
TEST(PlanFront, AgreesWithTheOracleOnRandomGraphs) {
  int64_t found = 0, wanted = 0, floors = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("graph " + std::to_string(seed));
    NodeCosts costs;
    const Graph graph = RandomDag(seed, &costs);
    const PlanOracle oracle(graph, costs);
    const PlanFront exact = MakePlanFront(graph, costs, {.budgets = 0, .work = 0});
    ASSERT_TRUE(exact.complete);
    std::vector<OraclePoint> points;
    for (int32_t i : exact.front)
      points.push_back({exact.points[i].price.peak_bytes, exact.points[i].extra_cost});
    ASSERT_EQ(points, oracle.front());
    EXPECT_EQ(exact.floor.bytes, oracle.floor());

    const PlanProblem problem(graph);
    const PeakFloor floor = FindFloor(problem);
    ASSERT_LE(floor.bytes, oracle.floor());
    floors += floor.bytes == oracle.floor();
    const PlanFront searched =
        MakePlanFront(graph, costs, {.budgets = 6, .work = 30'000, .states = 0});
    for (const PlanPoint& point : searched.points)
      ASSERT_GE(point.extra_cost, *oracle.Cost(point.price.peak_bytes)) << point.plan.name;
    for (const OraclePoint& point : oracle.front()) {
      ASSERT_LE(searched.CheapestWithin(point.peak_bytes), point.extra_cost * (1 + 1e-9));
      const PlanAnswer answer = Optimal(searched, point.peak_bytes);
      ++wanted;
      found += answer.kind == PlanAnswer::kPlan &&
               ExtraCost(graph, answer.plan, costs) == point.extra_cost;
    }
    for (const PlanPoint& point : searched.points)
      ASSERT_TRUE(ValidatePlan(graph, point.plan).ok()) << point.plan.name;
  }
  // Found: 1,649 of 1,656. Floors: all but 2.
  EXPECT_GT(wanted, 1500);
  EXPECT_GE(found * 100, wanted * 98);
  EXPECT_GE(floors, 980);
}

}  // namespace
}  // namespace tally
