// Checkpointed layers of every family: the same bits, less kept, and an account that still holds.
#include "tally/nn/layer_checkpoints.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/split.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/nn/conv_layers.h"
#include "tally/nn/model.h"
#include "tally/ops/ops.h"
#include "tally/tests/nn/tiny_models.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

struct StepRun {
  Tensors grads;
  double loss = 0;
  Tensor next;  // of the dropout's random sequence after the step
  Graph graph;
  int64_t saved = 0;
  int64_t measured_peak = 0;  // above what lived before, over the step
};

// One step on the CPU. `loss_of` gets the dropout sequence.
template <typename Fn>
StepRun Step(const std::vector<Tensor>& params, const Fn& loss_of) {
  StepRun run;
  Random dropout(5, RandomStream::kDropout);
  const int64_t before = ThreadMemory(DeviceKind::kCpu).live;
  ResetPeak(DeviceKind::kCpu);
  {
    Tape tape;
    tape.Watch(params);
    Tensor loss = loss_of(dropout);
    run.saved = tape.SavedBytes();
    run.grads = tape.Gradient(loss, params);
    run.loss = loss.Item();
    loss = Tensor();
    run.measured_peak = ThreadMemory(DeviceKind::kCpu).peak - before;
    run.graph = tape.Finish();
  }
  run.next = Dropout(params[0], 0.5, dropout);
  return run;
}

// By the events: above what was resident.
int64_t RecordedPeak(const Graph& graph) {
  int64_t resident = 0;
  for (const StorageRecord& s : graph.storages) resident += s.resident ? s.bytes : 0;
  return AnalyzeMemory(graph).peak_bytes - resident;
}

void ExpectSameStep(const StepRun& plain, const StepRun& again) {
  EXPECT_EQ(plain.loss, again.loss);
  ASSERT_EQ(plain.grads.size(), again.grads.size());
  for (size_t i = 0; i < plain.grads.size(); ++i) {
    EXPECT_TRUE(BitEqual(plain.grads[i], again.grads[i])) << "gradient " << i;
  }
  EXPECT_TRUE(BitEqual(plain.next, again.next)) << "the next random number";
  EXPECT_EQ(Verify(again.graph), absl::OkStatus());
  EXPECT_EQ(again.measured_peak, RecordedPeak(again.graph));
  const CostReport cost = AnalyzeCost(again.graph), plain_cost = AnalyzeCost(plain.graph);
  EXPECT_EQ(cost.model_flops(), plain_cost.model_flops());
  const SplitProof proof = ProveSplit(again.graph);
  EXPECT_TRUE(proof.holds);
  EXPECT_EQ(proof.recompute, cost.cost[Phase::kRecompute].flops.matmul);
  EXPECT_GE(ListResiduals(again.graph).retained, again.saved);
}

const char* const kSettings[] = {"full", "full:2", "matmul", "cheap", "attention"};

class EveryFamily : public ::testing::TestWithParam<Family> {};

TEST_P(EveryFamily, GivesTheSameBitsCheckpointed) {
  TransformerConfig config = Tiny(GetParam());
  config.layers = 3;
  config.attention = AttentionKind::kComposed;
  config.dropout = config.takes_images() ? 0 : 0.25;
  const auto step = [&](const LayerCheckpoints& checkpoints) {
    config.checkpoints = checkpoints;
    Parameters parameters(Random(1, RandomStream::kInit));
    const auto model = MakeModel(parameters, config);
    Random data(2, RandomStream::kData);
    const Batch batch = model->MakeBatch(2, 6, data);
    return Step(parameters.tensors(), [&](Random& d) { return model->Loss(batch, &d); });
  };
  const StepRun plain = step({});
  for (const char* setting : kSettings) {
    SCOPED_TRACE(setting);
    LayerCheckpoints checkpoints = *ParseLayerCheckpoints(setting);
    checkpoints.verify = true;
    const StepRun again = step(checkpoints);
    ExpectSameStep(plain, again);
    EXPECT_LT(again.saved, plain.saved);
  }
  // Of the last layer alone.
  const StepRun last = step({.kind = CheckpointKind::kFull, .on = {false, false, true}});
  ExpectSameStep(plain, last);
  for (const Node& node : last.graph.nodes) {
    if (node.phase != Phase::kRecompute) continue;
    EXPECT_THAT(last.graph.ScopePath(node.scope), HasSubstr("2"));
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, EveryFamily, ::testing::ValuesIn(AllFamilies()),
                         [](const auto& info) {
                           return kFamilyNames[static_cast<int>(info.param)];
                         });

TEST(LayerCheckpoints, OfTheSmallModels) {
  for (const char* name : {"mlp:6,8,8,4", "cruncher:8,5", "two-layer:8,4"}) {
    SCOPED_TRACE(name);
    const auto step = [&](const LayerCheckpoints& checkpoints) {
      FamilyConfig config = *BuiltinConfig(name);
      std::visit([&](auto& c) { c.checkpoints = checkpoints; }, config);
      Parameters parameters(Random(1, RandomStream::kInit));
      const auto model = MakeModel(parameters, config);
      Random data(2, RandomStream::kData);
      const Batch batch = model->MakeBatch(3, 0, data);
      return Step(parameters.tensors(), [&](Random& d) { return model->Loss(batch, &d); });
    };
    const StepRun plain = step({});
    for (const char* setting : {"full", "full:2", "matmul", "cheap"}) {
      ExpectSameStep(plain, step(*ParseLayerCheckpoints(setting)));
    }
  }
}

TEST(LayerCheckpoints, OfConvolutionsAndBatchNorm) {
  struct Net {
    explicit Net(Parameters& p)
        : conv1(p, "conv1", 3, 4, {3, 3}, {.conv = {.padding = {1, 1}}}),
          bn1(p, "bn1", 4),
          conv2(p, "conv2", 4, 4, {3, 3}, {.conv = {.padding = {1, 1}}}),
          bn2(p, "bn2", 4) {}
    Tensor operator()(const Tensor& x, bool on) const {
      // A skip around the second stage: what crosses its scope is kept, not made again.
      const auto first = [&] { return MaxPool2d(Relu(bn1(conv1(x))), {.kernel = {2, 2}}).y; };
      const Tensor skip = on ? Checkpoint(first) : first();
      const auto second = [&] { return Relu(bn2(conv2(skip))) + skip; };
      return Mean(Square(on ? Checkpoint(second) : second()));
    }
    Conv2dLayer conv1;
    BatchNormLayer bn1;
    Conv2dLayer conv2;
    BatchNormLayer bn2;
  };
  std::vector<Tensor> state[2];
  const auto step = [&](bool on) {
    Parameters parameters(Random(1, RandomStream::kInit));
    const Net net(parameters);
    Random data(2, RandomStream::kData);
    const Tensor x = Tensor::Normal({DType::kF32, {2, 3, 8, 8}}, 0, 1, data);
    const StepRun run = Step(parameters.tensors(), [&](Random&) { return net(x, on); });
    for (const Tensor& t : {net.bn1.running_mean(), net.bn1.running_var(), net.bn2.running_mean(),
                            net.bn2.running_var()}) {
      state[on].push_back(t);
    }
    return run;
  };
  const StepRun plain = step(false), again = step(true);
  ExpectSameStep(plain, again);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(BitEqual(state[0][i], state[1][i]));
}

// Full recomputation keeps what enters each block, 2 sbh in 16 bits: x[B,T,d]. Attention alone
// drops the s^2 terms: scores' softmax, its mask, what is dropped. (A GPT-2 block, f32, one layer's
// worth: the difference of models of 3 and 2 layers.)
TEST(LayerCheckpoints, KeepPerLayerWhatTheTheorySays) {
  constexpr int64_t kBatch = 2, kSeq = 16, kWidth = 32, kHeads = 4;
  constexpr int64_t kSbh = kBatch * kSeq * kWidth, kAss = kHeads * kSeq * kSeq * kBatch;
  bool fused = false;
  const auto saved = [&](int64_t layers, const std::string& setting) {
    TransformerConfig config{.vocab = 19,
                             .context = kSeq,
                             .width = kWidth,
                             .layers = layers,
                             .heads = kHeads,
                             .dropout = 0.1};
    if (fused) {
      config.attention = AttentionKind::kFused;
      config.dropout = 0;
    }
    config.checkpoints = *ParseLayerCheckpoints(setting);
    Parameters parameters(Random(1, RandomStream::kInit), DType::kF32, kMeta);
    const auto model = MakeModel(parameters, config);
    Random data(2, RandomStream::kData), dropout(3, RandomStream::kDropout);
    const Batch batch = model->MakeBatch(kBatch, kSeq, data);
    Tape tape;
    tape.Watch(parameters.tensors());
    const Tensor loss = model->Loss(batch, &dropout);
    return tape.SavedBytes();
  };
  const auto per_layer = [&](const std::string& setting) {
    return saved(3, setting) - saved(2, setting);
  };
  // Without: 16 sbh floats (two norms' inputs and outputs 4, q k v 3, mixed 1, up 4, gelu 4), their
  // dropout masks 2 sbh, softmax and what dropout made of it 2 as^2b floats and as^2b of mask;
  // statistics of two norms.
  const int64_t statistics = 2 * 2 * kBatch * kSeq * 4;
  EXPECT_EQ(per_layer("none"), 66 * kSbh + 9 * kAss + statistics);
  EXPECT_EQ(per_layer("attention"), 66 * kSbh + statistics);
  EXPECT_EQ(per_layer("full"), 4 * kSbh);
  // The fused kernel never kept the s^2 terms: there is one statistic a row and head to drop, and
  // no more, whatever the formula for the composed form promises.
  fused = true;
  const int64_t rows = 4 * kHeads * kSeq * kBatch;
  EXPECT_EQ(per_layer("none"), 64 * kSbh + rows + statistics);
  EXPECT_EQ(per_layer("attention"), 64 * kSbh + statistics);
  EXPECT_EQ(per_layer("full"), 4 * kSbh);
}

TEST(LayerCheckpoints, ParsesWhatItPrints) {
  EXPECT_EQ(ParseLayerCheckpoints("full:4")->group, 4);
  EXPECT_EQ(ParseLayerCheckpoints("none")->kind, CheckpointKind::kNone);
  EXPECT_EQ(ParseLayerCheckpoints("matmul")->kind, CheckpointKind::kMatMul);
  for (const char* bad : {"", "ful", "full:", "full:0", "full:-1", "full:x", "full:4:4", "none:2",
                          "attention:2", "full:99999999999999999999"}) {
    EXPECT_FALSE(ParseLayerCheckpoints(bad).ok()) << bad;
  }
  EXPECT_THAT(ParseLayerCheckpoints("ful").status().message(),
              HasSubstr("'ful' is none of none, full, matmul, cheap, attention"));
}

}  // namespace
}  // namespace tally
