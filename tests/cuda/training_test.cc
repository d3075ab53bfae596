// Whole training steps on a GPU beside the CPU: the same record, the same peak, the same numbers;
// checkpoints and plans change none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_selective.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/verify.h"
#include "tally/io/graph_text.h"
#include "tally/nn/model.h"
#include "tally/optim/adamw.h"
#include "tally/optim/clip.h"
#include "tally/tensor/backend.h"
#include "tally/tests/nn/tiny_models.h"
#include "tally/tests/plan_harness.h"
#include "tally/testing.h"

namespace tally {
namespace {

constexpr Device kCuda{DeviceKind::kCuda, 0};

struct Variant {
  Family family;
  AttentionKind attention;
  DType dtype;
};

TransformerConfig ConfigOf(const Variant& v) {
  TransformerConfig config = Tiny(v.family);
  config.layers = 3;
  config.attention = v.attention;
  // Fused attention has no dropout.
  if (v.attention == AttentionKind::kComposed && !config.takes_images()) config.dropout = 0.25;
  return config;
}

// What `steps` steps of AdamW on one device gave.
struct StepRun {
  std::vector<double> losses;
  std::vector<std::vector<double>> gradients, parameters;  // of the last step
  Graph graph;
  int64_t peak = 0;           // of the last step, requested bytes
  int64_t step_launches = 0;  // of the last step's optimizer
  uint64_t next_random = 0;
};

int64_t StepLaunches(Device device) {
  return device == kCuda ? ValueOrThrow(GpuStatsOf(device)).deferred_launches : 0;
}

StepRun Train(TransformerConfig config, DType dtype, Device device, int steps) {
  StepRun run;
  Parameters parameters(Random(1, RandomStream::kInit), dtype, device);
  const std::unique_ptr<Model> model = MakeModel(parameters, config);
  const std::vector<Tensor> params = parameters.tensors();
  AdamW adamw;
  Random data(2, RandomStream::kData), dropout(3, RandomStream::kDropout);
  for (int step = 0; step < steps; ++step) {
    const Batch batch = model->MakeBatch(2, config.takes_images() ? 0 : 6, data);
    ResetPeak(device.kind);
    const int64_t launches = StepLaunches(device);
    Tape tape;
    tape.Watch(params);
    const Tensor loss = model->Loss(batch, &dropout);
    const Tensors grads = tape.Gradient(loss, params);
    adamw.Step(params, grads);
    run.graph = tape.Finish();
    run.peak = ThreadMemory(device.kind).peak - run.graph.baseline_bytes;
    if (device.is_meta()) continue;
    run.losses.push_back(loss.ToDoubles()[0]);
    run.gradients.clear();
    for (const Tensor& g : grads) run.gradients.push_back(g.ToDoubles());
    run.step_launches = StepLaunches(device) - launches;
  }
  if (!device.is_meta()) {
    for (const Tensor& p : params) run.parameters.push_back(p.ToDoubles());
  }
  run.next_random = dropout.offset();
  return run;
}

void ExpectClose(const std::vector<std::vector<double>>& actual,
                 const std::vector<std::vector<double>>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    double largest = 0;
    for (double v : expected[i]) largest = std::max(largest, std::abs(v));
    ASSERT_EQ(actual[i].size(), expected[i].size());
    for (size_t e = 0; e < expected[i].size(); ++e) {
      ASSERT_NEAR(actual[i][e], expected[i][e], tolerance * std::max(largest, 1e-3))
          << what << " " << i << ", element " << e;
    }
  }
}

class Transformers : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(
    Families, Transformers,
    testing::Values(Variant{Family::kGpt2, AttentionKind::kComposed, DType::kF64},
                    Variant{Family::kGpt2, AttentionKind::kFused, DType::kF32},
                    Variant{Family::kLlama, AttentionKind::kFused, DType::kF64},
                    Variant{Family::kLlama, AttentionKind::kComposed, DType::kF32},
                    Variant{Family::kGemma, AttentionKind::kFused, DType::kF32},
                    Variant{Family::kBert, AttentionKind::kComposed, DType::kF64},
                    Variant{Family::kMixtral, AttentionKind::kFused, DType::kF64}),
    [](const auto& info) {
      return absl::StrCat(Name(info.param.family), "_",
                          kAttentionNames[static_cast<int>(info.param.attention)], "_",
                          Name(info.param.dtype));
    });

TEST_P(Transformers, TrainAsOnTheCpu) {
  const TransformerConfig config = ConfigOf(GetParam());
  const DType dtype = GetParam().dtype;
  const StepRun cpu = Train(config, dtype, kCpu, 2);
  const StepRun cuda = Train(config, dtype, kCuda, 2);
  const StepRun meta = Train(config, dtype, kMeta, 2);

  EXPECT_EQ(GraphText(cuda.graph), GraphText(cpu.graph));
  EXPECT_EQ(GraphText(cuda.graph), GraphText(meta.graph));
  EXPECT_EQ(cuda.peak, cpu.peak);
  EXPECT_EQ(cuda.peak, meta.peak);
  EXPECT_EQ(cuda.next_random, cpu.next_random);
  EXPECT_SPLIT_PROVEN(cuda.graph);
  // Of so many parameters, 50 and more at a time.
  EXPECT_GE(cuda.parameters.size(), 20u);
  EXPECT_LE(cuda.step_launches, 1 + static_cast<int64_t>(cuda.parameters.size()) / 50);

  const double tolerance = dtype == DType::kF64 ? 1e-10 : 2e-4;
  ExpectClose({cuda.losses}, {cpu.losses}, tolerance, "loss");
  ExpectClose(cuda.gradients, cpu.gradients, tolerance, "gradient");
  // Adam divides by the root of tiny squares: the update of a gradient near 0 is of any size.
  if (dtype == DType::kF64) ExpectClose(cuda.parameters, cpu.parameters, 1e-6, "parameter");
}

// The numbers of a device do not depend on when they are computed.
TEST_P(Transformers, GiveTheSameBitsAgainAndUnderCheckpoints) {
  TransformerConfig config = ConfigOf(GetParam());
  const DType dtype = GetParam().dtype;
  const StepRun plain = Train(config, dtype, kCuda, 2);
  const StepRun again = Train(config, dtype, kCuda, 2);
  EXPECT_EQ(again.losses, plain.losses);
  EXPECT_EQ(again.gradients, plain.gradients);
  EXPECT_EQ(again.parameters, plain.parameters);
  for (const char* how : {"full:1", "full:2", "matmul", "cheap"}) {
    SCOPED_TRACE(how);
    config.checkpoints = ValueOrThrow(ParseLayerCheckpoints(how));
    const StepRun checkpointed = Train(config, dtype, kCuda, 2);
    EXPECT_EQ(checkpointed.losses, plain.losses);
    EXPECT_EQ(checkpointed.gradients, plain.gradients);
    EXPECT_EQ(checkpointed.parameters, plain.parameters);
    EXPECT_EQ(checkpointed.next_random, plain.next_random);
    EXPECT_EQ(checkpointed.peak, Train(config, dtype, kMeta, 2).peak);
  }
}

TEST_P(Transformers, RunByPlansAsRecorded) {
  const TransformerConfig config = ConfigOf(GetParam());
  Parameters parameters(Random(1, RandomStream::kInit), GetParam().dtype, kCuda);
  const std::unique_ptr<Model> model = MakeModel(parameters, config);
  const std::vector<Tensor> params = parameters.tensors();
  AdamW adamw;
  Random data(2, RandomStream::kData), dropout(3, RandomStream::kDropout);
  const Batch batch = model->MakeBatch(2, 6, data);
  const auto run = [&](Tape& tape) {
    tape.Watch(params);
    const Tensor loss = model->Loss(batch, &dropout);
    Tensors grads = tape.Gradient(loss, params);
    adamw.Step(params, grads);
    std::vector<Tensor> all = {loss};
    all.insert(all.end(), grads.begin(), grads.end());
    all.insert(all.end(), params.begin(), params.end());
    for (const OptimizerState& s : adamw.state()) all.push_back(s.tensor);
    return all;
  };
  {
    Tape first;  // makes the optimizer's state
    run(first);
  }
  const RecordedStep step = RecordStep(run, {&dropout});
  std::vector<Plan> plans = {PlanNone(step.graph), PlanSqrt(step.graph), PlanTriangular(step.graph),
                             PlanUniform(step.graph, 1)};
  for (const std::string& kind : SelectiveKinds()) {
    absl::StatusOr<Plan> plan = PlanSelective(step.graph, kind);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
  }
  for (const Plan& plan : plans) ExpectPlanRunsLikeRecord(step, plan);
}

}  // namespace
}  // namespace tally
