// A whole training step, with gradients, dropout and an optimizer, keeps its meaning in every form
// of file.
#include "gtest/gtest.h"
#include "tally/autograd/tape.h"
#include "tally/io/graph_json.h"
#include "tally/io/graph_text.h"
#include "tally/ops/ops.h"
#include "tally/ops/optimizer_step.h"

namespace tally {
namespace {

// A block of a transformer in small: embedding, norm, projection, attention, dropout, loss, AdamW.
Graph TrainingStep(Device device) {
  Random init(1, RandomStream::kInit), noise(uint64_t{1} << 63, RandomStream::kDropout, 77);
  const auto parameter = [&](const Shape& shape, const char* name) {
    const Tensor t = Tensor::Normal({DType::kF32, shape}, 0, 0.02, init, device);
    Declare(t, Origin::kParameter, name);
    return t;
  };
  const std::vector<Tensor> params = {parameter({11, 8}, "wte"), parameter({8}, "ln.weight"),
                                      parameter({8}, "ln.bias"), parameter({8, 24}, "attn.w")};
  const Tensor ids = Tensor::Zeros({DType::kI64, {2, 5}}, device);
  Tape tape;
  tape.Watch(params);
  Tensor loss;
  {
    Scope block("h.0");
    Tensor x = GatherRows(params[0], ids);
    x = LayerNorm(x, params[1], params[2]);
    const Tensors qkv = SplitEvenly(MatMul(x, params[3]), 3, -1);
    x = Add(x, Attention(qkv[0], qkv[1], qkv[2], {.causal = true}));
    x = Dropout(GeluTanh(x), 0.1, noise);
    const Tensor logits = MatMul(x, params[0], {.b = true});
    loss = CrossEntropy(logits, ids);
    NameValue(loss, "loss");
  }
  const Tensors grads = tape.Gradient(loss, params);
  {
    ScopedPhase optimizer(Phase::kOptimizer);
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor m = Tensor::Zeros(params[i].spec(), device);
      const Tensor v = Tensor::Zeros(params[i].spec(), device);
      AdamWStep(params[i], grads[i], m, v, {.lr = 3e-4});
    }
  }
  return tape.Finish();
}

TEST(TrainingStep, GivesTheSameTextOnCpuAndMeta) {
  EXPECT_EQ(GraphText(TrainingStep(kCpu)), GraphText(TrainingStep(kMeta)));
}

TEST(TrainingStep, ReadsBackEqualFromJson) {
  const Graph graph = TrainingStep(kCpu);
  const absl::StatusOr<Graph> back = ParseGraphJson(GraphJsonText(graph));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(GraphDifference(graph, *back), "");
}

TEST(TrainingStep, ReadsBackEqualFromCompleteText) {
  const Graph graph = TrainingStep(kCpu);
  const absl::StatusOr<Graph> back = ParseGraphText(GraphText(graph, {.complete = true}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(GraphDifference(graph, *back), "");
}

TEST(TrainingStep, ShortTextReadsBackToTheSameText) {
  const std::string text = GraphText(TrainingStep(kMeta));
  const absl::StatusOr<Graph> back = ParseGraphText(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(GraphText(*back), text);
}

TEST(LongChain, WritesAndReads) {
  Tensor x = Tensor::Zeros({DType::kF32, {1}}, kMeta);
  Tape tape;
  for (int i = 0; i < 20'000; ++i) x = Add(x, 1.0);
  const Graph graph = tape.Finish();
  const absl::StatusOr<Graph> json = ParseGraphJson(GraphJsonText(graph));
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(GraphDifference(graph, *json), "");
  const absl::StatusOr<Graph> text = ParseGraphText(GraphText(graph, {.complete = true}));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(GraphDifference(graph, *text), "");
}

}  // namespace
}  // namespace tally
