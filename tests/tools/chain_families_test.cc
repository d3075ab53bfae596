// Plans of chains over the recorded steps of real models, optimizer and micro-batches included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/analysis/chain.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/nn/model.h"
#include "tally/tools/common/trace.h"

namespace tally {
namespace {

struct Case {
  const char* model;
  int64_t accumulate;
};

class ChainFamilies : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const absl::StatusOr<FamilyConfig> config = BuiltinConfig(GetParam().model);
    ASSERT_TRUE(config.ok()) << config.status();
    const absl::StatusOr<Trace> trace =
        TraceModel(*config, {.batch = 2, .sequence = 64, .accumulate = GetParam().accumulate});
    ASSERT_TRUE(trace.ok()) << trace.status();
    graph_ = trace->graph;
  }
  int64_t Peak(const Plan& plan) const {
    const absl::StatusOr<PlanPrice> price = PricePlan(graph_, plan);
    EXPECT_TRUE(price.ok()) << plan.name << ": " << price.status();
    return price.value_or(PlanPrice{}).peak_bytes;
  }
  Graph graph_;
};

INSTANTIATE_TEST_SUITE_P(
    Recorded, ChainFamilies,
    testing::Values(Case{"gpt2:layers=5,width=64,heads=4,vocab=200", 1},
                    Case{"gpt2:layers=4,width=64,heads=4,vocab=200,attention=composed", 2},
                    Case{"llama-3-8b:layers=4,width=64,heads=4,kv_heads=2,vocab=200,inner=128", 1},
                    Case{"mixtral-8x7b:layers=4,width=64,heads=4,kv_heads=2,vocab=200,inner=128",
                         2},
                    Case{"mlp:784,512,256,128,64,10", 1}));

TEST_P(ChainFamilies, HaveTheForeseenPeakAtEveryPoint) {
  const NodeCosts costs = FlopCosts(graph_);
  const int64_t none = Peak(PlanNone(graph_));
  int64_t least[2] = {};
  for (const ChainMoves moves : {ChainMoves::kPersistent, ChainMoves::kTrue}) {
    const absl::StatusOr<ChainCurve> curve = ChainCurve::Make(graph_, costs, moves);
    ASSERT_TRUE(curve.ok()) << curve.status();
    ASSERT_FALSE(curve->points().empty());
    for (size_t i = 0; i < curve->points().size(); ++i) {
      const Plan plan = curve->PlanAt(i);
      EXPECT_EQ(Peak(plan), curve->points()[i].peak_bytes) << i;
      EXPECT_EQ(ExtraCost(graph_, plan, costs), curve->points()[i].extra_cost) << i;
    }
    EXPECT_EQ(curve->points().back().extra_cost, 0);
    EXPECT_LE(curve->points().back().peak_bytes, none);
    least[moves == ChainMoves::kTrue] = curve->points().front().peak_bytes;
  }
  EXPECT_LE(least[1], least[0]);
  for (const Plan& plan : {PlanUniform(graph_, 1), PlanUniform(graph_, 3), PlanTriangular(graph_),
                           PlanLog(graph_), PlanRevolve(graph_, 2), PlanSqrt(graph_)}) {
    EXPECT_GE(Peak(plan), least[1]) << plan.name;
  }
}

}  // namespace
}  // namespace tally
