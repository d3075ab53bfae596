// Every family runs: values, gradients, masks and accounts of tiny models.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/io/graph_text.h"
#include "tally/nn/model.h"
#include "tally/ops/ops.h"
#include "tally/testing.h"
#include "tally/tests/nn/tiny_models.h"

namespace tally {
namespace {

struct Built {
  Built(const TransformerConfig& config, DType dtype, Device device = kCpu)
      : parameters(Random(3, RandomStream::kInit), dtype, device),
        model(MakeModel(parameters, config)) {}
  Parameters parameters;
  std::unique_ptr<Model> model;
};

// Weights far enough from their start that every part matters: normal, spread 0.4, where the
// published start is near 0 or 1.
void Stir(const Parameters& parameters) {
  Random random(9);
  for (const NamedTensor& p : parameters.named()) {
    AddInPlace(p.tensor, Tensor::Normal(p.tensor.spec(), 0, 0.4, random));
  }
}

Batch TinyBatch(const Model& model) {
  Random random(5, RandomStream::kData);
  return model.MakeBatch(2, 6, random);
}

class Families : public testing::TestWithParam<Family> {};

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(AllFamilies()),
                         [](const auto& info) { return std::string(Name(info.param)); });

struct Step {
  double loss = 0;
  Tensors grads;
  Graph graph;
};

Step TrainingStep(const Built& built, const Batch& batch) {
  Step step;
  const std::vector<Tensor> params = built.parameters.tensors();
  Tape tape;
  tape.Watch(params);
  const Tensor loss = built.model->Loss(batch, nullptr);
  step.grads = tape.Gradient(loss, params);
  step.graph = tape.Finish();
  if (!loss.device().is_meta()) step.loss = loss.Item();
  return step;
}

TEST_P(Families, HasTheGradientThatDifferencesGive) {
  const Built built(Tiny(GetParam()), DType::kF64);
  Stir(built.parameters);
  const Batch batch = TinyBatch(*built.model);
  const Step step = TrainingStep(built, batch);
  // Along one random direction through all parameters at once.
  Random random(11);
  std::vector<Tensor> direction;
  double expected = 0;
  for (size_t i = 0; i < step.grads.size(); ++i) {
    const Tensor& p = built.parameters.named()[i].tensor;
    direction.push_back(Tensor::Normal(p.spec(), 0, 1, random));
    expected += Sum(Mul(direction[i], step.grads[i])).Item();
    // A key's bias moves all scores of a query alike: its gradient is rounding alone.
    const std::string& name = built.parameters.named()[i].name;
    const bool key = absl::StrContains(name, "k_proj.bias") || absl::StrContains(name, "key.bias");
    EXPECT_TRUE(key || Max(Abs(step.grads[i])).Item() > 1e-12) << name;
  }
  const double h = 1e-6;
  const auto moved = [&](double by) {
    for (size_t i = 0; i < direction.size(); ++i) {
      AddInPlace(built.parameters.named()[i].tensor, Mul(direction[i], by));
    }
    return built.model->Loss(batch, nullptr).Item();
  };
  const double above = moved(h), below = moved(-2 * h);
  EXPECT_NEAR((above - below) / (2 * h), expected, 1e-6 * (1 + std::abs(expected)));
}

TEST_P(Families, HasAProvenAndVerifiedGraphThatMetaRepeats) {
  const Built cpu(Tiny(GetParam()), DType::kF32), meta(Tiny(GetParam()), DType::kF32, kMeta);
  const Graph graph = TrainingStep(cpu, TinyBatch(*cpu.model)).graph;
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
  EXPECT_SPLIT_PROVEN(graph);
  EXPECT_EQ(GraphText(graph), GraphText(TrainingStep(meta, TinyBatch(*meta.model)).graph));
}

TEST_P(Families, ComputesTheSameFusedAndComposed) {
  TransformerConfig config = Tiny(GetParam());
  config.attention = AttentionKind::kComposed;
  const Built composed(config, DType::kF64);
  config.attention = AttentionKind::kFused;
  const Built fused(config, DType::kF64);
  Stir(composed.parameters);
  Stir(fused.parameters);
  const Step a = TrainingStep(composed, TinyBatch(*composed.model)),
             b = TrainingStep(fused, TinyBatch(*fused.model));
  EXPECT_NEAR(a.loss, b.loss, 1e-12 * std::abs(a.loss));
  for (size_t i = 0; i < a.grads.size(); ++i) {
    const double difference = Max(Abs(Sub(a.grads[i], b.grads[i]))).Item();
    EXPECT_LT(difference, 1e-11) << composed.parameters.named()[i].name;
  }
}

TEST_P(Families, RunsInNarrowFloats) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Built built(Tiny(GetParam()), dtype);
    const Step step = TrainingStep(built, TinyBatch(*built.model));
    EXPECT_TRUE(std::isfinite(step.loss));
    for (const Tensor& g : step.grads) EXPECT_EQ(g.dtype(), dtype);
  }
}

class LanguageModels : public testing::TestWithParam<Family> {};

std::vector<Family> FamiliesOfTokens() {
  std::vector<Family> families;
  for (Family family : AllFamilies()) {
    if (Tiny(family).head == Head::kLanguageModel) families.push_back(family);
  }
  return families;
}

INSTANTIATE_TEST_SUITE_P(All, LanguageModels, testing::ValuesIn(FamiliesOfTokens()),
                         [](const auto& info) { return std::string(Name(info.param)); });

Tensor Ids(const std::vector<int64_t>& ids) {
  return Tensor::FromVector(ids, {1, static_cast<int64_t>(ids.size())});
}

TEST_P(LanguageModels, StartNearTheUniformLoss) {
  const Built built(Tiny(GetParam()), DType::kF32);
  EXPECT_NEAR(built.model->Loss(TinyBatch(*built.model), nullptr).Item(), std::log(11.0), 0.2);
}

TEST_P(LanguageModels, SeeOnlyThePast) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  const Transformer model(parameters, Tiny(GetParam()));
  Stir(parameters);
  const Tensor a = model(Ids({1, 2, 3, 4, 5})), b = model(Ids({1, 2, 3, 9, 9}));
  // A mixture adds up tokens of an expert in another order when others come to it.
  const Tensor difference = Abs(Sub(a, b));
  EXPECT_LT(Max(Slice(difference, 1, 0, 3)).Item(), 1e-12);
  EXPECT_GT(Max(Slice(difference, 1, 3, 5)).Item(), 1e-3);
}

TEST_P(LanguageModels, TreatPackedDocumentsAsSequencesOfTheirOwn) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  const Transformer model(parameters, Tiny(GetParam()));
  Stir(parameters);
  const Tensor packed = model(Ids({1, 2, 3, 4, 5, 6}), {.documents = {2, 4}});
  EXPECT_LT(Max(Abs(Sub(Slice(packed, 1, 0, 2), model(Ids({1, 2}))))).Item(), 1e-12);
  EXPECT_LT(Max(Abs(Sub(Slice(packed, 1, 2, 6), model(Ids({3, 4, 5, 6}))))).Item(), 1e-12);
  EXPECT_GT(Max(Abs(Sub(packed, model(Ids({1, 2, 3, 4, 5, 6}))))).Item(), 1e-3);
  EXPECT_THROW(model(Ids({1, 2, 3}), {.documents = {2, 2}}), Error);
  EXPECT_THROW(model(Ids({1, 2, 3}), {.documents = {2}}), Error);
}

// One layer with a window of 3: position 4 sees 2, 3, 4 and not 1.
TEST(Mistral, SeesItsWindow) {
  TransformerConfig config = Tiny(Family::kMistral);
  config.layers = 1;
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  const Transformer model(parameters, config);
  Stir(parameters);
  const auto last = [&](const std::vector<int64_t>& ids) { return Select(model(Ids(ids)), 1, 4); };
  const Tensor base = last({1, 2, 3, 4, 5});
  EXPECT_EQ(Max(Abs(Sub(base, last({9, 9, 3, 4, 5})))).Item(), 0);
  EXPECT_GT(Max(Abs(Sub(base, last({1, 2, 9, 4, 5})))).Item(), 1e-3);
}

TEST(Gemma2, CapsItsLogits) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  TransformerConfig config = Tiny(Family::kGemma2);
  config.final_softcap = 0.5;
  const Transformer model(parameters, config);
  Stir(parameters);
  EXPECT_LE(Max(Abs(model(Ids({1, 2, 3})))).Item(), 0.5);
}

TEST(Mixtral, WeighsItsExpertsAsTheRouterSays) {
  // One expert of four takes all of every token: the mixture is that expert's gated layer.
  TransformerConfig config = Tiny(Family::kMixtral);
  config.experts_per_token = 1;
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  const ExpertMixture mixture(parameters, "moe", config);
  Random random(2);
  const Tensor x = Tensor::Normal({DType::kF64, {2, 3, 8}}, 0, 1, random);
  const Tensor router = parameters.Find("moe.gate.weight");
  const Tensor scores = Linear(Reshape(x, {6, 8}), router);
  const std::vector<int64_t> chosen = ArgMax(scores, -1).ToVector<int64_t>();
  const Tensor y = Reshape(mixture(x), {6, 8});
  for (int64_t t = 0; t < 6; ++t) {
    const Tensor row = Slice(Reshape(x, {6, 8}), 0, t, t + 1);
    const auto expert = [&](const char* w) {
      return Select(parameters.Find(absl::StrCat("moe.experts.", w, ".weight")), 0, chosen[t]);
    };
    const Tensor h = Mul(Silu(Linear(row, expert("w1"))), Linear(row, expert("w3")));
    // Renormalised: the weight of a single choice is 1.
    EXPECT_LT(Max(Abs(Sub(Slice(y, 0, t, t + 1), Linear(h, expert("w2"))))).Item(), 1e-15);
  }
}

TEST(Bert, SeesBothWaysAndKeepsSegmentsApart) {
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF64);
  const Transformer model(parameters, Tiny(Family::kBert));
  Stir(parameters);
  const Tensor base = model(Ids({1, 2, 3}));
  EXPECT_EQ(base.shape(), (Shape{1, 8}));
  EXPECT_GT(Max(Abs(Sub(base, model(Ids({1, 2, 4}))))).Item(), 1e-3);
  const Tensor zeros = Ids({0, 0, 0}), second = Ids({0, 1, 1});
  EXPECT_TRUE(BitEqual(base, model(Ids({1, 2, 3}), {.token_types = zeros})));
  EXPECT_GT(Max(Abs(Sub(base, model(Ids({1, 2, 3}), {.token_types = second})))).Item(), 1e-3);
  EXPECT_THROW(model.Loss(Ids({1, 2, 3}), Tensor::Ones({DType::kF64, {1, 1}})), Error);
}

TEST(Bert, PredictsMaskedTokens) {
  TransformerConfig config = Tiny(Family::kBert);
  config.head = Head::kMaskedLanguageModel;
  const Built built(config, DType::kF32);
  const Step step = TrainingStep(built, TinyBatch(*built.model));
  EXPECT_NEAR(step.loss, std::log(11.0), 0.2);
  EXPECT_SPLIT_PROVEN(step.graph);
}

TEST(Opt, ProjectsItsEmbeddings) {
  TransformerConfig config = Tiny(Family::kOpt);
  config.embedding_width = 4;
  config.placement = NormPlacement::kPost;
  config.final_norm = false;
  const Built built(config, DType::kF32);
  EXPECT_SPLIT_PROVEN(TrainingStep(built, TinyBatch(*built.model)).graph);
}

TEST(Vit, TakesImagesAsPatches) {
  const Built built(Tiny(Family::kVit), DType::kF32);
  const Batch batch = TinyBatch(*built.model);
  EXPECT_EQ(batch.input.shape(), (Shape{2, 3, 6, 6}));
  EXPECT_EQ(batch.tokens, 2 * (9 + 1));  // 3x3 patches and the class token of each image
  EXPECT_EQ(built.model->Forward(batch, nullptr).shape(), (Shape{2, 5}));
  const Batch wrong{.input = Tensor::Ones({DType::kF32, {2, 3, 6, 8}})};
  EXPECT_THROW(built.model->Forward(wrong, nullptr), Error);
}

TEST(Llama, KeepsNoScoresWhenFused) {
  // No value of the step has T·T elements a head: saved bytes grow with T, not with T².
  TransformerConfig config = Tiny(Family::kLlama);
  config.context = 512;
  const Built built(config, DType::kF32, kMeta);
  const auto greatest = [&](int64_t sequence) {
    Random random(5, RandomStream::kData);
    int64_t most = 0;
    for (const Value& v :
         TrainingStep(built, built.model->MakeBatch(1, sequence, random)).graph.values) {
      most = std::max(most, v.spec.shape.numel());
    }
    return most;
  };
  EXPECT_EQ(greatest(512), 2 * greatest(256));
}

}  // namespace
}  // namespace tally
