#include "tally/analysis/plan_sqrt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chain_graphs.h"
#include "gpt_step.h"
#include "graph_builder.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

PlanPrice Price(const Graph& graph, const Plan& plan) {
  const absl::StatusOr<PlanPrice> price = PricePlan(graph, plan);
  EXPECT_TRUE(price.ok()) << price.status();
  return price.value_or(PlanPrice{});
}

struct Row {
  int layers, tapes;
  int64_t peak;       // of the sqrt plan
  int64_t store_all;  // of keeping everything
};

class SqrtChain : public testing::TestWithParam<Row> {};

// Published table for model M2: max_j (j + k_j (1 + a)) + 1 over the segments, and L (1 + a) + 2.
INSTANTIATE_TEST_SUITE_P(
    Published, SqrtChain,
    testing::Values(Row{4, 0, 5, 6}, Row{9, 0, 7, 11}, Row{10, 0, 7, 12}, Row{16, 0, 9, 18},
                    Row{64, 0, 17, 66}, Row{100, 0, 21, 102}, Row{1000, 0, 64, 1002},
                    Row{4, 1, 7, 10}, Row{9, 1, 10, 20}, Row{10, 1, 11, 22}, Row{16, 1, 13, 34},
                    Row{64, 1, 25, 130}, Row{100, 1, 31, 202}, Row{16, 2, 17, 50},
                    Row{100, 2, 41, 302}, Row{16, 4, 25, 82}, Row{100, 4, 61, 502}));

TEST_P(SqrtChain, HasThePublishedPeak) {
  const Graph graph = UnitChain(GetParam().layers, GetParam().tapes);
  EXPECT_EQ(Price(graph, PlanSqrt(graph)).peak_bytes, GetParam().peak * kUnitBytes);
}

TEST_P(SqrtChain, HasThePublishedPeakWithoutAPlan) {
  const Graph graph = UnitChain(GetParam().layers, GetParam().tapes);
  EXPECT_EQ(Price(graph, PlanNone(graph)).peak_bytes, GetParam().store_all * kUnitBytes);
}

struct Extra {
  int layers;
  int64_t nodes;
};

class SqrtReruns : public testing::TestWithParam<Extra> {};

// L minus the last segment, which is kept, minus the last layer of each other segment: early stop.
INSTANTIATE_TEST_SUITE_P(Published, SqrtReruns,
                         testing::Values(Extra{4, 2 - 1}, Extra{9, 6 - 2}, Extra{10, 8 - 2},
                                         Extra{16, 12 - 3}, Extra{64, 56 - 7}, Extra{100, 90 - 9},
                                         Extra{1000, 992 - 31}));

TEST_P(SqrtReruns, CountsLayersThatRunAgain) {
  const Graph graph = UnitChain(GetParam().layers, 0);
  const PlanPrice price = Price(graph, PlanSqrt(graph));
  EXPECT_EQ(price.extra_nodes, GetParam().nodes);
  EXPECT_EQ(price.recompute.other, GetParam().nodes * kUnitBytes / 4);
}

TEST(PlanSqrt, KeepsBoundariesAndOneSegment) {
  // L = 16 in segments of 4: 4 boundaries and 3 values inside the live segment.
  const Graph graph = UnitChain(16, 0);
  EXPECT_EQ(Price(graph, PlanSqrt(graph)).saved_bytes, (4 + 3) * kUnitBytes);
  EXPECT_EQ(Price(graph, PlanNone(graph)).saved_bytes, 16 * kUnitBytes);
}

TEST(PlanSqrt, NamesItsSegments) {
  const Plan plan = PlanSqrt(UnitChain(10, 0));  // 4, 4 and 2 blocks
  ASSERT_EQ(plan.segments.size(), 3u);
  EXPECT_EQ(plan.segments[0].blocks.size(), 4u);
  EXPECT_EQ(plan.segments[2].blocks.size(), 2u);
  EXPECT_TRUE(plan.segments[0].recomputed);
  EXPECT_FALSE(plan.segments[2].recomputed);
}

TEST(PlanSqrt, RecomputingTheLastSegmentTooDoesNotLowerThePeak) {
  const Graph graph = UnitChain(16, 0);
  const PlanPrice all = Price(graph, PlanSegments(graph, 4, /*recompute_last=*/true));
  EXPECT_EQ(all.peak_bytes, 9 * kUnitBytes);
  EXPECT_EQ(all.extra_nodes, 16 - 4);  // early stop in each of the 4 segments
}

TEST(PlanSqrt, DoesNotPayForOpsThatSaveOnlyTheirInput) {
  const Graph graph = UnitChain(16, 0);
  const PlanPrice single = Price(graph, PlanSegments(graph, 1, /*recompute_last=*/true));
  EXPECT_FALSE(Pays(single, Price(graph, PlanNone(graph))));
  EXPECT_EQ(single.extra_nodes, 0);
}

// A GPT with 9 blocks: segments of 3, the last kept.
class GptPlan : public testing::Test {
 protected:
  const Graph graph_ =
      GptStep(
          {.batch = 4, .seq = 32, .context = 32, .vocab = 64, .layers = 9, .width = 32, .heads = 2})
          .Record();
  const PlanPrice none_ = Price(graph_, PlanNone(graph_));
  const PlanPrice sqrt_ = Price(graph_, PlanSqrt(graph_));
};

TEST_F(GptPlan, KeepsTheResidualsWithoutAPlan) {
  EXPECT_EQ(none_.saved_bytes, ListResiduals(graph_).retained);
}

TEST_F(GptPlan, PaysInPeakAndSavedBytes) {
  EXPECT_TRUE(Pays(sqrt_, none_));
  EXPECT_LT(sqrt_.saved_bytes, none_.saved_bytes);
  EXPECT_LE(none_.peak_bytes, AnalyzeMemory(graph_).peak_bytes);
}

TEST_F(GptPlan, RerunsSixBlocksButForTheLastProductOfASegment) {
  // The sum that ends each of the 2 segments is kept: the 4d x d product before it need not run
  // again.
  const int64_t rows = 4 * 32, d = 32;
  const int64_t weights = 2 * rows * (3 * d * d + d * d + 4 * d * d + 4 * d * d);
  const int64_t attention = 2 * 2 * 4 * 32 * 32 * d;
  EXPECT_EQ(sqrt_.recompute.matmul, 6 * (weights + attention) - 2 * 2 * rows * 4 * d * d);
}

TEST(PlanSqrt, SaysThatThereAreNoBlocks) {
  GraphBuilder b;
  const ValueId x = b.Input({DType::kF32, {4}});
  b.Node(kUnit, {x}, {DType::kF32, {4}}, {});
  const Plan plan = PlanSqrt(b.g);
  EXPECT_EQ(plan.name, "sqrt");
  EXPECT_EQ(plan.note, "no repeated blocks were recorded");
  EXPECT_EQ(plan.steps, PlanNone(b.g).steps);
}

TEST(PlanSqrt, TakesTheBlocksNearestTheRoot) {
  GraphBuilder b;
  const TensorSpec spec{DType::kF32, {4}};
  ValueId x = b.Input(spec);
  const ScopeId model = b.Scope("gpt2");
  std::vector<ScopeId> expected;
  for (int i = 0; i < 3; ++i) {
    const ScopeId block = b.Scope("h." + std::to_string(i), model);
    expected.push_back(block);
    for (int j = 0; j < 5; ++j) {
      x = b.Node(kUnit, {x}, spec, {.scope = b.Scope("part." + std::to_string(j), block)});
    }
  }
  EXPECT_EQ(FindBlocks(b.g), expected);
}

TEST(ValidatePlan, NamesAReadOfWhatWasFreed) {
  const Graph graph = UnitChain(4, 0);
  Plan plan = PlanNone(graph);
  plan.steps.insert(plan.steps.begin() + 1, {PlanStep::kFree, 1});  // x_1, before layer 2 reads it
  EXPECT_EQ(ValidatePlan(graph, plan).message(),
            "plan none: step 2: node 1 (unit) reads %1, whose storage 1 is not live");
}

TEST(ValidatePlan, KeepsPinnedStorages) {
  const Graph graph = UnitChain(4, 0);
  Plan plan = PlanNone(graph);
  plan.steps.push_back({PlanStep::kFree, 0});  // x_0 outlives the record
  EXPECT_THAT(std::string(ValidatePlan(graph, plan).message()),
              testing::HasSubstr("frees storage 0, which holds a result or outlives the run"));
}

TEST(ValidatePlan, WantsEveryNodeToRun) {
  const Graph graph = UnitChain(4, 0);
  Plan plan;
  plan.name = "short";
  EXPECT_EQ(ValidatePlan(graph, plan).message(), "plan short: step 0: node 0 (unit) never runs");
}

}  // namespace
}  // namespace tally
