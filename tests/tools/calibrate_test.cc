// What --calibrate measures. No test looks at how long anything took.
#include "tally/tools/common/calibrate.h"
#include "tally/tests/measured_product.h"

#include <cmath>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tally/analysis/predict_time.h"
#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/op_table.h"
#include "tally/ops/ops.h"
#include "tally/tools/common/trace.h"

namespace tally {
namespace {

// The node of one case, recorded on meta.
Graph Recorded(const CalibrationCase& c) {
  std::vector<Tensor> inputs;
  for (const TensorSpec& spec : c.specs()) inputs.push_back(Tensor::Empty(spec, kMeta));
  Tape tape;
  if (inputs.empty()) {
    ThrowIfError(TryApplyOn(kMeta, *c.op, c.attrs).status());
  } else {
    ApplyAll(*c.op, TensorArgs(inputs.begin(), inputs.end()), c.attrs);
  }
  return tape.Finish();
}

TEST(CalibrationCases, TimeEveryOp) {
  std::set<std::string> missing;
  for (const OpDef* op : AllOps()) missing.insert(op->name);
  for (const CalibrationCase& c : CalibrationCases()) missing.erase(c.op->name);
  EXPECT_THAT(missing, testing::IsEmpty());
}

// A machine on which only `add` and one product were measured: every op gets a time, by a fallback
// if need be, and no floor is above it.
TEST(CalibrationCases, EveryOpHasATimeByFallbackToo) {
  Calibration calibration;
  calibration.bandwidth = {{1e5, 5e10}, {1e8, 1e10}};
  Sample add;
  add.work = {.op = "add", .elements = 3e4, .bytes = 1.2e5, .least_bytes = 1.2e5, .other = 1e4};
  add.seconds = 3e-6;
  calibration.samples = {add, MeasuredProduct(1e-5)};
  const Speeds speeds(calibration);
  for (const CalibrationCase& c : CalibrationCases()) {
    const Graph graph = Recorded(c);
    const TimePrediction p = PredictTime(graph, speeds);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const PredictedTime& time = p.nodes[n];
      ASSERT_TRUE(time.seconds > 0 && std::isfinite(time.seconds)) << c.op->name;
      ASSERT_LE(time.floor, time.seconds) << c.op->name;
      ASSERT_TRUE(time.floor > 0 || c.op->kind == OpKind::kView) << c.op->name;
    }
  }
}

// Every case runs, smallest operands first: a sample for each, at the size of its record.
TEST(Calibrator, TimesEachCaseAtItsSize) {
  std::vector<CalibrationCase> cases;
  std::set<std::string> ops;
  for (const CalibrationCase& c : CalibrationCases()) {
    int64_t elements = 0;
    for (const TensorSpec& spec : c.specs()) elements += spec.numel();
    if (elements > 100'000 || !ops.insert(c.op->name).second) continue;
    cases.push_back(c);
  }
  EXPECT_GT(cases.size(), 150);
  Calibrator calibrator({.threads = 1, .rounds = 1, .sample_seconds = 0}, cases);
  calibrator.Round();
  const Calibration result = calibrator.Result();
  ASSERT_EQ(result.samples.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Graph graph = Recorded(cases[i]);
    const Workload meta = WorkloadOf(graph, graph.nodes.back());
    const Sample& sample = result.samples[i];
    EXPECT_EQ(sample.work.op, cases[i].op->name);
    EXPECT_EQ(sample.work.elements, meta.elements) << sample.work.op;
    EXPECT_EQ(sample.work.flops, meta.flops) << sample.work.op;
    EXPECT_TRUE(sample.seconds > 0 && std::isfinite(sample.seconds)) << sample.work.op;
  }
  EXPECT_GT(result.bandwidth.front().rate, 0);
  EXPECT_GT(result.memory, 0);
  EXPECT_FALSE(result.processor.empty());
}

// Lookups, attention, groups of rows and an optimizer: the operands of each are made up.
TEST(CasesOf, TakesEachCallOfAStepOnceAndPredictsItAsMeasured) {
  for (const char* name : {"gpt2:layers=2,width=32,heads=2,vocab=64,context=16",
                           "mixtral-8x7b:layers=1,width=32,heads=4,kv_heads=2,vocab=64"}) {
    const absl::StatusOr<FamilyConfig> config = BuiltinConfig(name);
    ASSERT_TRUE(config.ok()) << config.status();
    const absl::StatusOr<Trace> trace = TraceModel(*config, {.batch = 2, .sequence = 8});
    ASSERT_TRUE(trace.ok()) << trace.status();
    const Graph& graph = trace->graph;
    std::set<std::string> calls;
    for (const Node& node : graph.nodes) {
      if (node.op->kind != OpKind::kView) calls.insert(WorkloadOf(graph, node).call);
    }
    const std::vector<CalibrationCase> cases = CasesOf({&graph, &graph});
    EXPECT_EQ(cases.size(), calls.size());
    Calibrator calibrator({.threads = 1, .rounds = 1, .sample_seconds = 0, .call_seconds = 0}, {},
                          cases);
    calibrator.Round();
    const Calibration machine = calibrator.Result();
    EXPECT_TRUE(machine.samples.empty());
    ASSERT_EQ(machine.calls.size(), calls.size());
    const Speeds speeds(machine);
    for (const Sample& call : machine.calls) {
      EXPECT_EQ(calls.count(call.work.call), 1) << call.work.call;
      EXPECT_EQ(speeds.TimeOf(call.work).seconds, call.seconds) << call.work.call;
    }
  }
}

TEST(CasesOf, LeavesOutWhatIsBeyondItsLimits) {
  const Tensor a = Tensor::Empty({DType::kF32, {1024, 1024}}, kMeta);
  Tape tape;
  Add(MatMul(a, a), a);
  const Graph graph = tape.Finish();
  const auto count = [&](const CallLimits& limits) { return CasesOf({&graph}, limits).size(); };
  EXPECT_EQ(count({}), 2);
  EXPECT_EQ(count({.flops = 2.0 * 1024 * 1024 * 1024 - 1}), 1);
  // The product reads one matrix and writes one; the sum reads two.
  EXPECT_EQ(count({.bytes = 2 * 4 * 1024 * 1024}), 1);
  EXPECT_EQ(count({.bytes = 2 * 4 * 1024 * 1024 - 1}), 0);
}

TEST(CaseAttrs, RefusesWhatTheOpDoesNotHave) {
  EXPECT_THROW(CaseAttrs(*FindOp("sum"), "axis=1"), Error);
  EXPECT_THROW(CaseAttrs(*FindOp("softmax"), "axis=x"), Error);
}

}  // namespace
}  // namespace tally
