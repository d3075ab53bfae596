#include "tally/analysis/floor.h"

#include <algorithm>
#include <vector>

#include "dag_graphs.h"
#include "gpt_step.h"
#include "gtest/gtest.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

constexpr int64_t kUnitOf = DagBuilder::kUnit;

// B_m holds x + a + b + d_m + d_a + d_b = 1 + 3 + 3 + 1 + 3 + 3.
TEST(Floor, OfTheDiamondIsTheWorkingSetOfItsProduct) {
  const Graph graph = Diamond(nullptr);
  const PeakFloor floor = FindFloor(graph);
  EXPECT_EQ(floor.bytes, 14 * kUnitOf);
  EXPECT_EQ(graph.nodes[floor.node].serves, 2);  // m
  EXPECT_EQ(graph.nodes[floor.node].phase, Phase::kBackward);
  EXPECT_EQ(floor.operands, 13 * kUnitOf);
  EXPECT_EQ(floor.beside, 1 * kUnitOf);  // x
  EXPECT_EQ(floor.scratch, 0);
}

// Published: with 5 units there is a plan, with 4 there is none.
TEST(Floor, OfTwoResidualBlocks) {
  EXPECT_LE(FindFloor(TwoResidualBlocks(nullptr)).bytes, 5 * kUnitOf);
  EXPECT_GT(FindFloor(TwoResidualBlocks(nullptr)).bytes, 3 * kUnitOf);
}

// What is large on the way to what backward reads: working sets of first runs do not tell.
TEST(Floor, SeesThatMakingSomethingAgainTakesRoomToo) {
  DagBuilder b;
  const ValueId x = b.Input(1);
  const ValueId wide = b.Forward({x}, 6, {});
  const ValueId kept = b.Forward({wide}, 4, {});
  const ValueId y = b.Forward({kept}, 4, {.saves = {kept}});
  const Graph graph = b.Finish(b.Forward({y}, 4, {.saves = {y}}), nullptr);
  const std::vector<int64_t> sets = WorkingSets(PlanProblem(graph));
  // Backward of the last holds x, y and two gradients.
  EXPECT_EQ(*std::max_element(sets.begin(), sets.end()), (1 + 4 + 4 + 4) * kUnitOf);
  // The next one reads `kept`: it lived beside that, 17 units, or was made again of `wide` beside
  // x and a gradient.
  const PeakFloor floor = FindFloor(graph);
  EXPECT_EQ(floor.bytes, (1 + 6 + 4 + 4) * kUnitOf);
  EXPECT_EQ(floor.node, 1);
  EXPECT_EQ(graph.nodes[floor.before].serves, 2);
  EXPECT_EQ(floor.operands, (6 + 4) * kUnitOf);
  EXPECT_EQ(floor.beside, (1 + 4) * kUnitOf);
}

TEST(Floor, CountsParametersGradientsAndWhatIsNotRead) {
  GraphBuilder b;
  const TensorSpec spec{DType::kF32, {64}};
  const ValueId weight = b.Input(spec, Origin::kParameter, "w");
  b.Input({DType::kF32, {1024}}, Origin::kOptimizerState, "m");  // nothing reads it
  const ValueId x = b.Input(spec);
  b.Node(kUnit, {weight, x}, spec, {});
  // Nothing was freed: all outlives the record, the result too.
  const PeakFloor floor = FindFloor(b.g);
  EXPECT_EQ(floor.bytes, 3 * 256 + 4096);
  EXPECT_EQ(floor.beside, 4096);
  EXPECT_EQ(floor.node, 0);
}

TEST(Floor, OfAnEmptyRecordIsNothing) {
  const Graph graph;
  EXPECT_EQ(FindFloor(graph).bytes, 0);
  EXPECT_EQ(FindFloor(graph).node, kNone);
}

TEST(Floor, IsBelowNoPlanOfARealStep) {
  const Graph graph =
      GptStep(
          {.batch = 2, .seq = 32, .context = 32, .vocab = 64, .layers = 3, .width = 32, .heads = 2})
          .Record();
  const PeakFloor floor = FindFloor(graph);
  const PlanPrice none = PriceValidPlan(graph, PlanNone(graph));
  EXPECT_LT(floor.bytes, none.peak_bytes);
  // All parameters live to the end.
  int64_t parameters = 0;
  for (const StorageRecord& s : graph.storages) {
    if (s.origin == Origin::kParameter) parameters += s.bytes;
  }
  EXPECT_GT(floor.bytes, parameters);
  EXPECT_EQ(floor.bytes, floor.operands + floor.beside + floor.scratch);
}

}  // namespace
}  // namespace tally
