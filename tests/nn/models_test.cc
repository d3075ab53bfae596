#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/autograd/tape.h"
#include "tally/nn/model.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const Parameters& parameters) {
  std::vector<std::string> names;
  for (const NamedTensor& p : parameters.named()) names.push_back(p.name);
  return names;
}

Parameters OnMeta() { return Parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta); }

double StandardDeviation(const std::vector<double>& values) {
  double mean = 0, square = 0;
  for (double v : values) mean += v / static_cast<double>(values.size());
  for (double v : values) square += (v - mean) * (v - mean) / static_cast<double>(values.size());
  return std::sqrt(square);
}

TEST(Gpt2, HasTheNamesShapesAndOrderOfTheOriginal) {
  Parameters parameters = OnMeta();
  Transformer model(parameters, {.layers = 1});
  EXPECT_THAT(
      Names(parameters),
      ElementsAre("wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias",
                  "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight",
                  "h.0.attn.c_proj.bias", "h.0.ln_2.weight", "h.0.ln_2.bias", "h.0.mlp.c_fc.weight",
                  "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias",
                  "ln_f.weight", "ln_f.bias"));
  EXPECT_EQ(parameters.Find("wte.weight").shape(), (Shape{50257, 768}));
  EXPECT_EQ(parameters.Find("h.0.attn.c_attn.weight").shape(), (Shape{768, 2304}));
  EXPECT_EQ(parameters.Find("h.0.mlp.c_proj.weight").shape(), (Shape{3072, 768}));
}

TEST(Gpt2, HasThePublishedParameterCounts) {
  const std::pair<const char*, int64_t> published[] = {{"gpt2", 124439808},
                                                       {"gpt2-medium", 354823168},
                                                       {"gpt2-large", 774030080},
                                                       {"gpt2-xl", 1557611200}};
  for (const auto& [name, count] : published) {
    EXPECT_EQ(CountParameters(*BuiltinConfig(name)), count) << name;
  }
}

TEST(Gpt2, StartsNearTheUniformLoss) {
  Parameters parameters;
  const auto model = MakeModel(
      parameters,
      TransformerConfig{.vocab = 65, .context = 16, .width = 32, .layers = 2, .heads = 4});
  Random random(1, RandomStream::kData);
  const Batch batch = model->MakeBatch(4, 16, random);
  EXPECT_NEAR(model->Loss(batch, nullptr).Item(), std::log(65.0), 0.1);
}

TEST(Gpt2, SeesOnlyThePast) {
  Parameters parameters;
  Transformer model(parameters, {.vocab = 50, .context = 8, .width = 16, .layers = 2, .heads = 2});
  const Tensor a = model(Tensor::FromVector<int64_t>({1, 2, 3, 4, 5}, {1, 5}));
  const Tensor b = model(Tensor::FromVector<int64_t>({1, 2, 3, 9, 9}, {1, 5}));
  const auto first = [](const Tensor& x) { return Slice(x, 1, 0, 3).ToDoubles(); };
  EXPECT_EQ(first(a), first(b));
  EXPECT_NE(a.ToDoubles(), b.ToDoubles());
}

TEST(Gpt2, DropoutChangesOnlyTrainingAndRepeatsWithItsSeed) {
  Parameters parameters;
  Transformer model(
      parameters,
      {.vocab = 50, .context = 8, .width = 16, .layers = 1, .heads = 2, .dropout = 0.5});
  const Tensor ids = Tensor::FromVector<int64_t>({1, 2, 3}, {1, 3});
  Random one(7, RandomStream::kDropout), same(7, RandomStream::kDropout),
      other(8, RandomStream::kDropout);
  const Tensor dropped = model(ids, {&one});
  EXPECT_TRUE(BitEqual(model(ids), model(ids)));
  EXPECT_TRUE(BitEqual(dropped, model(ids, {&same})));
  EXPECT_FALSE(BitEqual(dropped, model(ids, {&other})));
}

TEST(Gpt2, NamesWhatDoesNotFit) {
  Parameters parameters = OnMeta();
  EXPECT_THAT([&] { Transformer(parameters, {.width = 100, .heads = 12}); },
              testing::ThrowsMessage<Error>(HasSubstr("width 100 is not a multiple of heads 12")));
  Parameters more = OnMeta();
  Transformer model(more, {.context = 4, .layers = 1});
  EXPECT_THAT(
      [&] {
        model(Tensor::Empty({DType::kI64, {1, 5}}, kMeta));
      },
      testing::ThrowsMessage<Error>(HasSubstr("a sequence of at most 4")));
}

// Lecture 2 of the resource-accounting course: x @ W with W ~ randn grows by sqrt(d_in) a layer.
TEST(Cruncher, ScaledWeightsKeepTheSpreadAtAnyWidth) {
  std::vector<double> scaled, plain;
  for (int64_t width : {64, 256, 1024}) {
    for (bool scale : {true, false}) {
      Parameters parameters;
      const Cruncher model(parameters, {.width = width, .layers = 1, .scaled = scale});
      Random random(2);
      const Tensor x = Tensor::Normal({DType::kF32, {64, width}}, 0, 1, random);
      const Tensor h = MatMul(x, parameters.Find("layers.0.weight"));
      (scale ? scaled : plain).push_back(StandardDeviation(h.ToDoubles()));
    }
  }
  for (double s : scaled) EXPECT_NEAR(s, 1, 0.1);
  EXPECT_NEAR(plain[0], std::sqrt(64.0), 1);
  EXPECT_NEAR(plain[1], std::sqrt(256.0), 2);
  EXPECT_NEAR(plain[2], std::sqrt(1024.0), 4);
}

TEST(Cruncher, HasTheLecturesParameterCount) {
  // D² a layer and a head of D.
  EXPECT_EQ(CountParameters(CruncherConfig{.width = 256, .layers = 16}), 16 * 256 * 256 + 256);
}

TEST(Cruncher, RefusesATargetThatWouldBroadcast) {
  Parameters parameters;
  const Cruncher model(parameters, {.width = 4, .layers = 1});
  const Tensor x = Tensor::Ones({DType::kF32, {3, 4}});
  EXPECT_THROW(model.Loss(x, Tensor::Ones({DType::kF32, {3, 1}})), Error);
}

TEST(Gpt2, RefusesUndefinedIds) {
  Parameters parameters;
  const Transformer model(parameters,
                          {.vocab = 8, .context = 4, .width = 4, .layers = 1, .heads = 2});
  EXPECT_THROW(model(Tensor()), Error);
}

TEST(Mlp, LearnsToTellPointsApart) {
  Parameters parameters;
  const Mlp model(parameters, {.sizes = {2, 16, 2}, .activation = Activation::kTanh});
  // XOR.
  const Tensor x = Tensor::FromVector<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});
  const Tensor y = Tensor::FromVector<int64_t>({0, 1, 1, 0}, {4});
  const std::vector<Tensor> params = parameters.tensors();
  double loss_value = 0;
  for (int step = 0; step < 500; ++step) {
    Tape tape;
    tape.Watch(params);
    const Tensor loss = model.Loss(x, y);
    const Tensors grads = tape.Gradient(loss, params);
    ScopedPhase phase(Phase::kOptimizer);
    for (size_t i = 0; i < params.size(); ++i) AddInPlace(params[i], Mul(grads[i], -0.5));
    loss_value = loss.Item();
  }
  EXPECT_LT(loss_value, 0.05);
}

TEST(Builtin, TakesSizesAndExplainsBadOnes) {
  EXPECT_THAT(std::get<MlpConfig>(*BuiltinConfig("mlp:4,8,2")).sizes, ElementsAre(4, 8, 2));
  EXPECT_EQ(std::get<CruncherConfig>(*BuiltinConfig("cruncher:32,3")).layers, 3);
  EXPECT_EQ(std::get<TransformerConfig>(*BuiltinConfig("gpt2:layers=2,width=96")).width, 96);
  EXPECT_THAT(BuiltinConfig("mlp:4").status().message(), HasSubstr("mlp:784,512,10"));
  EXPECT_THAT(BuiltinConfig("mlp:4,x").status().message(), HasSubstr("mlp:784,512,10"));
  EXPECT_THAT(BuiltinConfig("gpt2:depth=3").status().message(), HasSubstr("layers=2"));
  EXPECT_EQ(BuiltinConfig("gtp2").status().code(), absl::StatusCode::kNotFound);
}

TEST(Model, IsTheSameOnMetaDownToItsBatch) {
  for (const char* name : {"gpt2:layers=1,width=32,heads=2,vocab=64,context=8", "mlp:5,7,3",
                           "cruncher:8,2", "two-layer:8,4"}) {
    Parameters cpu, meta = OnMeta();
    const auto a = MakeModel(cpu, *BuiltinConfig(name)), b = MakeModel(meta, *BuiltinConfig(name));
    Random r1(1, RandomStream::kData), r2(1, RandomStream::kData);
    const Tensor x = a->Loss(a->MakeBatch(3, 8, r1), nullptr),
                 y = b->Loss(b->MakeBatch(3, 8, r2), nullptr);
    EXPECT_EQ(x.spec(), y.spec()) << name;
    EXPECT_EQ(Names(cpu), Names(meta));
  }
}

}  // namespace
}  // namespace tally
