// Each fault that the validator finds, in its words.
#include "tally/autograd/plan.h"

#include <algorithm>

#include "tally/analysis/simulate.h"
#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/dropout.h"
#include "tally/ops/unary.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

// Forward: 0 a = x², 1 v = view of a, 2 b = v², 3 e = tanh(x). Backward: 4 c =
// v b, 5 view of c. Optimizer: 6 x += c. Storages: 0 a, 1 x, 2 b, 3 e, 4 c; of
// these x outlives the record.
Graph Step() {
  const Tensor x = Tensor::Ones({DType::kF32, {4}}, kMeta);
  Tape tape;
  {
    const Tensor a = Square(x), v = Reshape(a, {2, 2}), b = Square(v),
                 e = Tanh(x);
    Tensor c;
    {
      ScopedPhase backward(Phase::kBackward, 0);
      c = Reshape(Mul(v, b), {4});
    }
    ScopedPhase optimizer(Phase::kOptimizer);
    AddInPlace(x, c);
  }
  return tape.Finish();
}

class ValidatePlanFault : public testing::Test {
protected:
  static PlanStep Run(NodeId n) { return {PlanStep::kRun, n}; }
  static PlanStep Free(StorageId s) { return {PlanStep::kFree, s}; }

  // The message for these steps, without "plan test: step N: ".
  std::string Fault(const std::vector<PlanStep> &steps) const {
    Plan plan;
    plan.name = "test";
    plan.steps = steps;
    const std::string message(ValidatePlan(graph_, plan).message());
    const size_t at = message.find(": ", message.find(": step ") + 2);
    return at == std::string::npos ? message : message.substr(at + 2);
  }

  const Graph graph_ = Step();
};

TEST_F(ValidatePlanFault, NoneInWhatWasRecorded) {
  ASSERT_EQ(graph_.nodes.size(), 7u);
  ASSERT_EQ(graph_.storages.size(), 5u);
  EXPECT_EQ(ValidatePlan(graph_, PlanNone(graph_)), absl::OkStatus());
  EXPECT_THAT(PinnedStorages(graph_),
              ElementsAre(false, true, false, false, false));
}

TEST_F(ValidatePlanFault, IsOfAStep) {
  Plan plan;
  plan.name = "test";
  plan.steps = {Run(0), Run(9)};
  EXPECT_EQ(ValidatePlan(graph_, plan).message(),
            "plan test: step 1: node 9 does not exist");
}

TEST_F(ValidatePlanFault, ANodeOrStorageThatIsNotThere) {
  EXPECT_EQ(Fault({Run(-1)}), "node -1 does not exist");
  EXPECT_EQ(Fault({Free(5)}), "storage 5 does not exist");
}

TEST_F(ValidatePlanFault, BackwardAndUpdatesTwice) {
  const std::vector<PlanStep> all = {Run(0), Run(1), Run(2), Run(3),
                                     Run(4), Run(5), Run(6)};
  const auto twice = [&](NodeId n) {
    std::vector<PlanStep> steps = all;
    steps.push_back(Run(n));
    return Fault(steps);
  };
  EXPECT_EQ(
      twice(4),
      "node 4 (mul) runs again; only forward nodes that update nothing may");
  EXPECT_EQ(
      twice(6),
      "node 6 (add_) runs again; only forward nodes that update nothing may");
}

TEST_F(ValidatePlanFault, FirstRunsOutOfOrder) {
  EXPECT_EQ(Fault({Run(0), Run(1), Run(3), Run(2)}),
            "node 2 (square) runs out of order");
}

TEST_F(ValidatePlanFault, ReadsOfWhatIsNotThere) {
  EXPECT_EQ(Fault({Run(0), Free(0), Run(1)}),
            "node 1 (reshape) reads %1, whose storage 0 is not live");
  EXPECT_EQ(Fault({Run(0), Run(1), Free(0), Run(0), Run(2)}),
            "node 2 (square) reads %2, which was not computed since storage 0 "
            "was allocated");
}

TEST_F(ValidatePlanFault, ReadsOfAnotherVersion) {
  std::vector<PlanStep> steps = PlanNone(graph_).steps;
  steps.push_back(Run(3)); // after the update of x
  EXPECT_EQ(Fault(steps), "node 3 (tanh) reads %0 at version 1 of storage 1; "
                          "it was recorded at version 0");
}

TEST_F(ValidatePlanFault, FreesOfWhatIsNotThereOrMustStay) {
  EXPECT_EQ(Fault({Run(0), Free(0), Free(0)}),
            "frees storage 0, which is not live");
  EXPECT_EQ(Fault({Free(1)}),
            "frees storage 1, which holds a result or outlives the run");
}

TEST_F(ValidatePlanFault, NodesThatNeverRunAndStoragesThatStay) {
  std::vector<PlanStep> steps = PlanNone(graph_).steps;
  steps.erase(std::find(steps.begin(), steps.end(), Free(3)));
  EXPECT_EQ(Fault(steps), "the plan ends and never frees storage 3");
  EXPECT_EQ(Fault({Run(0)}), "node 1 (reshape) never runs");
}

// y and a mask of one node; the mask is a result and was filled after. Making y
// again writes the mask too, over what the fill left.
TEST(ValidatePlan, WantsResultsAsTheRecordLeftThem) {
  const Tensor x = Tensor::Ones({DType::kF32, {4}}, kMeta);
  Tape tape;
  Tensor mask, z;
  {
    Tensors out = ApplyAll(kDropout, {{x}}, DropoutAttrs{.p = 0.5});
    mask = out[1];
    FillInPlace(mask, 1);
    ScopedPhase backward(Phase::kBackward, 0);
    z = Square(out[0]);
  }
  const Graph graph = tape.Finish();
  Plan plan = PlanNone(graph);
  ASSERT_EQ(ValidatePlan(graph, plan), absl::OkStatus());
  const StorageId y = graph.values[graph.out(graph.nodes[0])[0]].storage;
  const auto square = std::find(plan.steps.begin(), plan.steps.end(),
                                PlanStep{PlanStep::kRun, 2});
  plan.steps.insert(square, {{PlanStep::kFree, y}, {PlanStep::kRun, 0}});
  EXPECT_EQ(ValidatePlan(graph, plan).message(),
            "plan none: step 6: the plan ends with storage 1 at version 0; the "
            "record left it at "
            "version 1");
}

TEST(ScratchBytes, AreOfStoragesThatHoldNoValue) {
  Graph graph = Step();
  graph.storages[3].origin =
      Origin::kScratch; // e: what an optimizer makes between is this too
  graph.storages.push_back({.bytes = 96, .origin = Origin::kScratch});
  graph.events.push_back({StorageEvent::kAllocate, 5, 2});
  graph.events.push_back({StorageEvent::kFree, 5, 2});
  EXPECT_THAT(ScratchBytes(graph), ElementsAre(0, 0, 96, 0, 0, 0, 0));
}

} // namespace
} // namespace tally
