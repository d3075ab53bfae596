#include "tally/analysis/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpt_step.h"
#include "graph_builder.h"
#include "tally/analysis/fit.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/simulate.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

TensorSpec Bytes(int64_t bytes) { return {DType::kU8, {bytes}}; }

// One of every part: w 100 B with a cast of 50, x 8, a 40 that backward reads, b 60 that it does
// not, 20 B of scratch; gradients of an activation 30, of w 100 and again of w 100; moments 7,
// master 9.
Graph OneOfEach() {
  GraphBuilder g;
  const ValueId x = g.Input(Bytes(8)), w = g.Input(Bytes(100), Origin::kParameter, "w");
  const ValueId m = g.Input({DType::kF32, {7}}, Origin::kOptimizerState, "w.exp_avg"),
                master = g.Input({DType::kF32, {9}}, Origin::kOptimizerState, "w.master");
  const ValueId a = g.Node(kUnit, {x, w}, Bytes(40), {.saves = {w}});
  const ValueId b = g.Node(kUnit, {a}, Bytes(60), {.saves = {a}});
  g.g.storages.push_back({20, Origin::kScratch});
  const StorageId scratch = static_cast<StorageId>(g.g.storages.size()) - 1;
  const auto backward = [&](NodeId serves, ValueId in, int64_t bytes) {
    return g.Node(kUnit, {in, a}, Bytes(bytes),
                  {.phase = Phase::kBackward, .serves = serves, .origin = Origin::kGradient});
  };
  const ValueId da = backward(1, b, 30), dw = backward(0, da, 100), again = backward(0, da, 100);
  g.g.events.push_back({StorageEvent::kAllocate, scratch, g.last()});
  g.g.events.push_back({StorageEvent::kFree, scratch, g.last() + 1});
  g.Free(again);
  g.Node(kUnit, {w, dw, m, master}, Bytes(3),
         {.phase = Phase::kOptimizer, .origin = Origin::kScratch});
  g.g.gradients = {dw, again};
  g.g.gradient_of = {w, w};
  g.g.loss = b;
  g.g.outputs = {b};
  return g.g;
}

TEST(Budget, PutsEachByteOfThePeakInOnePart) {
  const Budget budget = BudgetOf(OneOfEach());
  EXPECT_EQ(budget.peak_node, 4);
  EXPECT_EQ(budget.parts[BudgetPart::kParameters], 100);
  EXPECT_EQ(budget.parts[BudgetPart::kGradients], 100);
  EXPECT_EQ(budget.parts[BudgetPart::kMoments], 7 * 4);
  EXPECT_EQ(budget.parts[BudgetPart::kMaster], 9 * 4);
  EXPECT_EQ(budget.parts[BudgetPart::kSaved], 40);
  EXPECT_EQ(budget.parts[BudgetPart::kTransient], 60 + 30 + 100);
  EXPECT_EQ(budget.parts[BudgetPart::kInputs], 8);
  EXPECT_EQ(budget.parts[BudgetPart::kWorkspace], 20);
  EXPECT_EQ(budget.peak_bytes, 100 + 100 + 28 + 36 + 40 + 190 + 8 + 20);
  EXPECT_EQ(budget.peak_bytes, AnalyzeMemory(OneOfEach()).peak_bytes);
}

TEST(Budget, NamesWhatIsTransient) {
  std::vector<std::pair<std::string, int64_t>> transient;
  for (const BudgetLine& line : BudgetOf(OneOfEach()).lines) {
    if (line.part == BudgetPart::kTransient) transient.emplace_back(line.what, line.bytes);
  }
  EXPECT_THAT(transient, testing::UnorderedElementsAre(
                             testing::Pair("activations that backward reads no more", 60),
                             testing::Pair("gradients of activations, parts of sums", 30),
                             testing::Pair("gradients of one micro-batch", 100)));
}

TEST(Budget, TellsTheWholeStateApartFromThePeak) {
  const ModelStates states = StatesOf(OneOfEach());
  EXPECT_EQ(states.elements, 100);
  EXPECT_EQ(states.total(), 100 + 100 + 28 + 36);
  EXPECT_EQ(states.per_parameter(BudgetPart::kMaster), 0.36);
  EXPECT_EQ(states.per_parameter(), 2.64);
  ASSERT_EQ(states.lines.size(), 4u);
  EXPECT_EQ(states.lines[2].what, "exp_avg");
  EXPECT_EQ(states.lines[2].dtype, DType::kF32);
  EXPECT_EQ(states.lines[2].elements, 7);
}

TEST(Budget, OfAnEmptyGraphIsZero) {
  const Budget budget = BudgetOf(GraphBuilder().g);
  EXPECT_EQ(budget.peak_bytes, 0);
  EXPECT_EQ(budget.peak_node, kNone);
  EXPECT_TRUE(budget.lines.empty());
  EXPECT_EQ(budget.states.per_parameter(), 0);
}

GptSizes Small(int64_t batch) {
  return {
      .batch = batch, .seq = 8, .context = 8, .vocab = 32, .layers = 4, .width = 16, .heads = 2};
}

TEST(Budget, OfAGptAddsUpToItsPeakAndToThatOfEveryPlan) {
  const Graph graph = GptStep(Small(2)).Record();
  const Budget recorded = BudgetOf(graph);
  const MemoryReport memory = AnalyzeMemory(graph);
  EXPECT_EQ(recorded.peak_bytes, memory.peak_bytes);
  EXPECT_EQ(recorded.peak_node, memory.peak_node);
  EXPECT_EQ(recorded.parts.total(), memory.peak_bytes);
  for (const Plan& plan : {PlanNone(graph), PlanSqrt(graph), PlanSegments(graph, 1, true)}) {
    const Budget budget = BudgetOf(graph, plan);
    const PlanPrice price = PriceValidPlan(graph, plan);
    EXPECT_EQ(budget.peak_bytes, price.peak_bytes) << plan.name;
    EXPECT_EQ(budget.peak_node, price.peak_node) << plan.name;
    EXPECT_EQ(budget.parts.total(), price.peak_bytes) << plan.name;
  }
  EXPECT_LT(BudgetOf(graph, PlanSqrt(graph)).parts[BudgetPart::kSaved],
            recorded.parts[BudgetPart::kSaved]);
}

TEST(Budget, SplitsByBatchAsTwoRecordsDiffer) {
  const Graph two = GptStep(Small(2)).Record(), three = GptStep(Small(3)).Record(),
              five = GptStep(Small(5)).Record();
  const Budget at_two = BudgetOf(two), at_three = BudgetOf(three);
  const absl::StatusOr<BatchSplit> split = SplitByBatch(two, at_two, three);
  ASSERT_TRUE(split.ok()) << split.status();
  for (int p = 0; p < kNumBudgetParts; ++p)
    EXPECT_EQ(split->fixed.bytes[p] + split->growing.bytes[p], at_two.parts.bytes[p]);
  // Twice what grows by one sequence is what two sequences take: nothing else depends on the batch.
  EXPECT_EQ(split->growing.total(), 2 * split->growth);
  EXPECT_EQ(at_three.peak_bytes - at_two.peak_bytes, split->growth);
  const absl::StatusOr<BatchSplit> larger = SplitByBatch(three, at_three, five);
  ASSERT_TRUE(larger.ok()) << larger.status();
  EXPECT_EQ(larger->fixed.bytes, split->fixed.bytes);
  EXPECT_EQ(larger->growth, 2 * split->growth);
}

TEST(Budget, SaysWhereTwoRecordsPart) {
  const Graph whole = GptStep(Small(2)).Record(), forward = GptStep(Small(2)).Record(true);
  const absl::Status status = SplitByBatch(whole, BudgetOf(whole), forward).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("goes on"));
}

TEST(Fit, FindsTheLargestByTheTwoNeighbours) {
  // Peaks 10 + 7n against 100: n = 12 takes 94, 13 takes 101.
  int calls = 0;
  const auto peak = [&](int64_t n) -> absl::StatusOr<int64_t> {
    ++calls;
    return 10 + 7 * n;
  };
  const FitResult found = ValueOrThrow(FindLargest(1000, 100, peak));
  EXPECT_EQ(found.fits->size, 12);
  EXPECT_EQ(found.fits->peak, 94);
  EXPECT_EQ(found.over->size, 13);
  EXPECT_EQ(found.over->peak, 101);
  EXPECT_EQ(found.falls, "");
  EXPECT_LE(calls, 2 * 4);
  for (int64_t usable = 0; usable <= 150; ++usable) {
    for (int64_t limit : {1, 2, 3, 7, 8, 9}) {
      const FitResult result = ValueOrThrow(FindLargest(limit, usable, peak));
      int64_t largest = 0;
      while (largest < limit && 10 + 7 * (largest + 1) <= usable) ++largest;
      EXPECT_EQ(result.fits ? result.fits->size : 0, largest) << usable << ' ' << limit;
      EXPECT_EQ(result.over ? result.over->size : 0, largest < limit ? largest + 1 : 0);
    }
  }
}

TEST(Fit, SaysWherePeaksFall) {
  const auto peak = [](int64_t n) -> absl::StatusOr<int64_t> { return n == 2 ? 50 : 20 + n; };
  EXPECT_EQ(ValueOrThrow(FindLargest(8, 30, peak)).falls, "");
  EXPECT_EQ(ValueOrThrow(FindLargest(8, 60, peak)).falls, "the peak at 4 is below that at 2");
  const auto fails = [](int64_t) -> absl::StatusOr<int64_t> { return absl::InternalError("no"); };
  EXPECT_EQ(FindLargest(8, 60, fails).status().message(), "no");
}

}  // namespace
}  // namespace tally
