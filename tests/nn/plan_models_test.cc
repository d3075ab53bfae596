// Plans of whole models, executed on the CPU: GPT, Llama with grouped heads,
// experts, a U-Net with batch norm. Dropout is everywhere, before, inside and
// after what runs again.
#include <algorithm>

#include "gtest/gtest.h"
#include "tally/analysis/plan_front.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/nn/conv_layers.h"
#include "tally/nn/layers.h"
#include "tally/nn/model.h"
#include "tally/ops/binary.h"
#include "tally/ops/dropout.h"
#include "tally/ops/join.h"
#include "tally/ops/pool.h"
#include "tally/ops/reduce.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"
#include "tally/optim/adamw.h"
#include "tally/tests/nn/tiny_models.h"
#include "tally/tests/plan_harness.h"

namespace tally {
namespace {

// Every plan that the front made, of all planners, the planners by rule, both kinds of segments of
// every length, and random run lists.
void ExpectPlansRun(const RecordedStep& step, int blocks) {
  const Graph& graph = step.graph;
  ASSERT_EQ(FindBlocks(graph).size(), static_cast<size_t>(blocks));
  std::vector<Plan> plans = {PlanTriangular(graph), PlanLog(graph)};
  for (int c = 1; c <= 3; ++c) plans.push_back(PlanRevolve(graph, c));
  for (int k = 1; k <= blocks; ++k) plans.push_back(PlanSegments(graph, k, true));
  Random random(4);
  for (double drops : {0.02, 0.1, 0.2}) plans.push_back(RandomPlan(graph, random, drops));
  PlanFront front =
      MakePlanFront(graph, FlopCosts(graph), {.budgets = 6, .work = 2'000'000, .states = 2'000});
  ASSERT_GT(front.front.size(), 3u);
  for (PlanPoint& point : front.points) plans.push_back(std::move(point.plan));
  int64_t extra = 0;
  for (const Plan& plan : plans) {
    ExpectPlanRunsLikeRecord(step, plan);
    if (testing::Test::HasFailure()) return;
    extra += PriceValidPlan(graph, plan).extra_nodes;
  }
  EXPECT_GT(extra, 0);
}

struct Variant {
  Family family;
  AttentionKind attention;  // fused attention has no dropout
};

class Transformers : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Families, Transformers,
                         testing::Values(Variant{Family::kGpt2, AttentionKind::kComposed},
                                         Variant{Family::kLlama, AttentionKind::kComposed},
                                         Variant{Family::kLlama, AttentionKind::kFused},
                                         Variant{Family::kMixtral, AttentionKind::kComposed},
                                         Variant{Family::kMixtral, AttentionKind::kFused}),
                         [](const auto& info) {
                           return std::string(Name(info.param.family)) + "_" +
                                  kAttentionNames[static_cast<int>(info.param.attention)];
                         });

// A step of AdamW in the middle of a run, on five blocks.
TEST_P(Transformers, RunByPlansAsRecorded) {
  TransformerConfig config = Tiny(GetParam().family);
  config.layers = 5;
  config.attention = GetParam().attention;
  config.dropout = config.attention == AttentionKind::kComposed ? 0.25 : 0;
  Parameters parameters(Random(1, RandomStream::kInit));
  const std::unique_ptr<Model> model = MakeModel(parameters, config);
  const std::vector<Tensor> params = parameters.tensors();
  AdamW adamw;
  Random data(2, RandomStream::kData), dropout(3, RandomStream::kDropout);
  Batch batch = model->MakeBatch(2, 6, data);
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
    Tape first;
    run(first);
  }
  const RecordedStep step = RecordStep(run, {&dropout});
  ASSERT_EQ(step.rng.size(), config.dropout > 0 ? 1u : 0u);
  ExpectPlansRun(step, 5);
}

// Down and up again: each level's features are read again on the way up, so the
// graph is no chain.
class UNet {
 public:
  explicit UNet(Parameters& parameters) {
    for (int i = 0; i < kLevels; ++i) {
      const std::string level = std::to_string(i);
      const int64_t in = i == 0 ? 2 : 4;
      down_[i] = Conv2dLayer(parameters, "down." + level, in, 4, {3, 3}, {.conv = Padded()});
      down_norm_[i] = BatchNormLayer(parameters, "down_norm." + level, 4);
      up_[i] = Conv2dLayer(parameters, "up." + level, 8, 4, {3, 3}, {.conv = Padded()});
      up_norm_[i] = BatchNormLayer(parameters, "up_norm." + level, 4);
    }
  }

  Tensor Loss(const Tensor& images, Random& dropout) const {
    std::vector<Tensor> skips;
    Tensor x = images;
    for (int i = 0; i < kLevels; ++i) {
      const Scope scope("down." + std::to_string(i));
      x = Dropout(Relu(down_norm_[i](down_[i](x))), 0.25, dropout);
      skips.push_back(x);
      x = MaxPool2d(x, {}).y;
    }
    for (int i = kLevels; i-- > 0;) {
      const Scope scope("up." + std::to_string(i));
      x = Relu(up_norm_[i](up_[i](Cat({Larger(x), skips[i]}, 1))));
    }
    return Mean(Square(x));
  }

  std::vector<Tensor> statistics() const {
    std::vector<Tensor> all;
    for (const auto* norms : {&down_norm_, &up_norm_}) {
      for (const BatchNormLayer& norm : *norms) {
        all.push_back(norm.running_mean());
        all.push_back(norm.running_var());
      }
    }
    return all;
  }

 private:
  static constexpr int kLevels = 3;
  static Conv2dOptions Padded() { return {.padding = {1, 1}}; }
  // Twice as high and wide, each pixel four times.
  static Tensor Larger(const Tensor& x) {
    const int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
    const Tensor wide = Expand(Reshape(x, {n, c, h, 1, w, 1}), {n, c, h, 2, w, 2});
    return Reshape(wide, {n, c, 2 * h, 2 * w});
  }

  Conv2dLayer down_[kLevels], up_[kLevels];
  BatchNormLayer down_norm_[kLevels], up_norm_[kLevels];
};

TEST(UNetPlans, RunAsRecordedAndTouchTheStatisticsOnce) {
  Parameters parameters(Random(1, RandomStream::kInit));
  const UNet net(parameters);
  const std::vector<Tensor> params = parameters.tensors();
  Random data(2, RandomStream::kData), dropout(3, RandomStream::kDropout);
  const Tensor images = Tensor::Normal({DType::kF32, {2, 2, 16, 16}}, 0, 1, data);
  const RecordedStep step = RecordStep(
      [&](Tape& tape) {
        tape.Watch(params);
        const Tensor loss = net.Loss(images, dropout);
        const Tensors grads = tape.Gradient(loss, params);
        std::vector<Tensor> all = net.statistics();
        all.push_back(loss);
        all.insert(all.end(), grads.begin(), grads.end());
        return all;
      },
      {&dropout});
  ExpectPlansRun(step, 3);
}

}  // namespace
}  // namespace tally
