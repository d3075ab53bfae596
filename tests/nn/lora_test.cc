#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/autograd/tape.h"
#include "tally/nn/layers.h"
#include "tally/nn/model.h"
#include "tally/ops/ops.h"
#include "tally/testing.h"
#include "tally/tests/nn/tiny_models.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const NamedTensor& p : tensors) names.push_back(p.name);
  return names;
}

std::vector<Tensor> Handles(const std::vector<NamedTensor>& tensors) {
  std::vector<Tensor> handles;
  for (const NamedTensor& p : tensors) handles.push_back(p.tensor);
  return handles;
}

TEST(Lora, CostsWhatItsProductsCost) {
  const int64_t t = 16, d = 64, r = 4;
  Parameters parameters;
  parameters.Adapt({.rank = r, .targets = "layer"});
  const LinearLayer layer(parameters, "layer", d, d, {.bias = false});
  const Tensor x = Tensor::Ones({DType::kF32, {t, d}});
  std::vector<Tensor> watched = Handles(parameters.trained());
  watched.push_back(x);  // as in the middle of a model
  Tape tape;
  tape.Watch(watched);
  const Tensor loss = Sum(layer(x));
  const Tensors grads = tape.Gradient(loss, watched);
  const Graph graph = tape.Finish();
  // Forward: x Wᵀ, x Aᵀ and u Bᵀ; backward: dx by W, and both gradients of each adapter product.
  EXPECT_EQ(2 * t * d * d + 2 * (2 * t * d * r), 147'456);
  EXPECT_EQ(2 * t * d * d + 4 * (2 * t * d * r), 163'840);
  EXPECT_FLOPS(graph, .forward = 147'456, .backward = 163'840);
  EXPECT_SPLIT_PROVEN(graph);
}

TEST(Lora, IsNamedAndShapedAsPeftHasIt) {
  Parameters parameters;
  parameters.Adapt({.rank = 2, .targets = "q_proj|v_proj"});
  TransformerConfig config = Tiny(Family::kLlama);
  config.layers = 1;
  const Transformer model(parameters, config);
  EXPECT_THAT(Names(parameters.trained()),
              ElementsAre("model.layers.0.self_attn.q_proj.lora_A.weight",
                          "model.layers.0.self_attn.q_proj.lora_B.weight",
                          "model.layers.0.self_attn.v_proj.lora_A.weight",
                          "model.layers.0.self_attn.v_proj.lora_B.weight"));
  EXPECT_EQ(parameters.Find("model.layers.0.self_attn.v_proj.lora_A.weight").shape(),
            (Shape{2, 8}));
  EXPECT_EQ(parameters.Find("model.layers.0.self_attn.v_proj.lora_B.weight").shape(),
            (Shape{4, 2}));
}

TEST(Lora, TakesTheLinearLayersOfBlocksUnlessTold) {
  Parameters parameters;
  parameters.Adapt({.rank = 1});
  TransformerConfig config = Tiny(Family::kGpt2);
  config.layers = 1;
  config.tied = false;
  const Transformer model(parameters, config);
  EXPECT_THAT(Names(parameters.trained()),
              ElementsAre("h.0.attn.c_attn.lora_A.weight", "h.0.attn.c_attn.lora_B.weight",
                          "h.0.attn.c_proj.lora_A.weight", "h.0.attn.c_proj.lora_B.weight",
                          "h.0.mlp.c_fc.lora_A.weight", "h.0.mlp.c_fc.lora_B.weight",
                          "h.0.mlp.c_proj.lora_A.weight", "h.0.mlp.c_proj.lora_B.weight"));
}

TEST(Lora, StartsAsTheModelWithoutIt) {
  const TransformerConfig config = Tiny(Family::kQwen2);
  Parameters plain(Random(4, RandomStream::kInit)), adapted(Random(4, RandomStream::kInit));
  adapted.Adapt({.rank = 3});
  const auto a = MakeModel(plain, config), b = MakeModel(adapted, config);
  Random random(1, RandomStream::kData);
  const Batch batch = a->MakeBatch(2, 6, random);
  for (const NamedTensor& p : plain.named()) {
    EXPECT_TRUE(BitEqual(p.tensor, adapted.Find(p.name))) << p.name;
  }
  EXPECT_EQ(a->Loss(batch, nullptr).Item(), b->Loss(batch, nullptr).Item());
}

TEST(Lora, AddsItsScaledProduct) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  parameters.Adapt({.rank = 2, .alpha = 8, .targets = "^a$"});
  const LinearLayer layer(parameters, "a", 3, 5), other(parameters, "b", 3, 5);
  Random random(6);
  const Tensor b = parameters.Find("a.lora_B.weight");
  AddInPlace(b, Tensor::Normal(b.spec(), 0, 1, random));
  const Tensor x = Tensor::Normal({DType::kF64, {4, 3}}, 0, 1, random);
  // y = x Wᵀ + bias + 8/2 (x Aᵀ) Bᵀ, by the merged weight W + 4 B A.
  const Tensor merged =
      Add(layer.weight(), Mul(MatMul(b, parameters.Find("a.lora_A.weight")), 4.0));
  EXPECT_LT(Max(Abs(Sub(layer(x), Linear(x, merged, layer.bias())))).Item(), 1e-14);
  EXPECT_FALSE(parameters.Find("b.lora_A.weight").defined());
}

TEST(Lora, TakesLayersByName) {
  Parameters parameters;
  parameters.Adapt({.rank = 2, .layers = {"b", "d"}});
  for (const char* name : {"a", "b", "c"}) LinearLayer(parameters, name, 3, 5);
  EXPECT_THAT(parameters.adapted(), ElementsAre("b"));
}

TEST(Lora, NamesWhatIsWrong) {
  Parameters parameters;
  const auto refused = [&](const LoraOptions& options, const char* message) {
    EXPECT_THAT([&] { parameters.Adapt(options); },
                testing::ThrowsMessage<Error>(HasSubstr(message)));
  };
  refused({.rank = 0}, "the rank is 0");
  refused({.rank = 2, .alpha = -1}, "alpha is -1");
  refused({.rank = 2, .targets = "("}, "is not a regular expression");
}

}  // namespace
}  // namespace tally
