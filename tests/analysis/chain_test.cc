// Deep graphs: every analysis takes a chain of 100,000 ops, without recursion and in linear time.
#include <gtest/gtest.h>

#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/roofline.h"
#include "tally/analysis/split.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/ops/unary.h"

namespace tally {
namespace {

class DeepChain : public testing::Test {
 protected:
  static constexpr int kOps = 100'000;

  static void SetUpTestSuite() {
    Tape tape;
    const Tensor x = Tensor::Empty({DType::kF32, {}}, kMeta);
    tape.Watch(x);
    Tensor y = x;
    for (int i = 0; i < kOps; ++i) {
      const Scope scope("h." + std::to_string(i / 100));
      y = Sin(y);
    }
    tape.Gradient(y, x);
    y = Tensor();
    graph_ = new Graph(tape.Finish());
  }
  static void TearDownTestSuite() { delete graph_; }
  static Graph* graph_;
};
Graph* DeepChain::graph_ = nullptr;

TEST_F(DeepChain, Verifies) { EXPECT_EQ(Verify(*graph_), absl::OkStatus()); }

// One kernel runs the whole of forward; what backward reads of it is still written.
TEST_F(DeepChain, FusesAndTakesTime) {
  const RooflineReport r = AnalyzeRoofline(*graph_, ProveSplit(*graph_), *FindHardware("h100"));
  EXPECT_EQ(r.total.memory_bound, r.total.cost.nodes);
  EXPECT_GE(r.fusion.fused_nodes, kOps);
  EXPECT_LT(r.fused.seconds, r.total.seconds);
}

TEST_F(DeepChain, CostsOneSineEach) {
  EXPECT_EQ(AnalyzeCost(*graph_).cost[Phase::kForward].flops.transcendental, kOps);
}

TEST_F(DeepChain, KeepsEveryInput) { EXPECT_EQ(ListResiduals(*graph_).retained, 4 * kOps); }

TEST_F(DeepChain, HasNoContractions) { EXPECT_TRUE(ProveSplit(*graph_).holds); }

TEST_F(DeepChain, IsPlannedInSegments) {
  // 1,000 blocks of 100 ops in segments of 32.
  const absl::StatusOr<PlanPrice> price = PricePlan(*graph_, PlanSqrt(*graph_));
  ASSERT_TRUE(price.ok()) << price.status();
  EXPECT_LT(price->peak_bytes, AnalyzeMemory(*graph_).none.peak_bytes / 10);
}

}  // namespace
}  // namespace tally
