#include "tally/nn/transformer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/nn/model.h"
#include "tally/nn/presets.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

struct Published {
  const char* name;
  int64_t parameters;
  int64_t active = 0;  // 0: all
};

// Of the papers, the model cards and the checkpoints.
constexpr Published kPublished[] = {
    {"distilgpt2", 81'912'576},
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"pythia-14m", 14'067'712},
    {"pythia-70m", 70'426'624},
    {"pythia-160m", 162'322'944},
    {"pythia-6.9b", 6'857'302'016},
    {"pythia-12b", 11'846'072'320},
    {"gpt-neox-20b", 20'554'567'680},
    {"llama-2-7b", 6'738'415'616},
    {"llama-2-13b", 13'015'864'320},
    {"llama-2-70b", 68'976'648'192},
    {"llama-3-8b", 8'030'261'248},
    {"llama-3-70b", 70'553'706'496},
    {"llama-3.1-8b", 8'030'261'248},
    {"llama-3.1-405b", 405'853'388'800},
    {"llama-3.2-1b", 1'235'814'400},
    {"llama-3.2-3b", 3'212'749'824},
    {"tinyllama-1.1b", 1'100'048'384},
    {"smollm2-135m", 134'515'008},
    {"mistral-7b-v0.1", 7'241'732'096},
    {"mistral-7b-v0.3", 7'248'023'552},
    {"mixtral-8x7b", 46'702'792'704, 12'879'925'248},
    {"qwen2-0.5b", 494'032'768},
    {"qwen2.5-1.5b", 1'543'714'304},
    {"qwen2.5-32b", 32'763'876'352},
    {"qwen2.5-72b", 72'706'203'648},
    {"qwen3-0.6b", 596'049'920},
    {"qwen3-1.7b", 1'720'574'976},
    {"qwen3-4b", 4'022'468'096},
    {"qwen3-30b-a3b", 30'532'122'624},
    {"gemma-2b", 2'506'172'416},
    {"gemma-7b", 8'537'680'896},
    {"gemma-2-2b", 2'614'341'888},
    {"gemma-2-9b", 9'241'705'984},
    {"phi-1.5", 1'418'270'720},
    {"phi-2", 2'779'683'840},
    {"phi-3-mini", 3'821'079'552},
    {"opt-125m", 125'239'296},
    {"opt-350m", 331'196'416},
    {"opt-6.7b", 6'658'473'984},
    {"bert-base", 109'482'240},
    {"bert-large", 335'141'888},
    {"all-minilm-l6-v2", 22'713'216},
    {"vit-b-16", 86'567'656},
    {"vit-l-16", 304'326'632},
    {"cs336-gpt2-small", 190'460'160},
    {"cs336-gpt2-xl", 2'127'057'600},
};

TEST(Presets, HaveThePublishedParameterCounts) {
  for (const Published& p : kPublished) {
    const FamilyConfig config = ValueOrThrow(BuiltinConfig(p.name));
    EXPECT_EQ(CountParameters(config), p.parameters) << p.name;
    if (absl::string_view(p.name) == "qwen3-30b-a3b") continue;  // the next test
    EXPECT_EQ(CountActiveParameters(config), p.active > 0 ? p.active : p.parameters) << p.name;
  }
}

TEST(Presets, CountTheExpertsThatATokenGoesToAsActive) {
  // All but 120 of the 128 experts of 3·2048·768 in each of the 48 layers.
  EXPECT_EQ(CountActiveParameters(*BuiltinConfig("qwen3-30b-a3b")),
            30'532'122'624 - int64_t{48} * 120 * 3 * 2048 * 768);
}

TEST(Presets, HaveMegatronsGpt3WithTheFinalNormThatItsFormulaLeavesOut) {
  // arXiv:2104.04473: 12lh² + 13lh + (V+s)h = 174,615,822,336.
  const int64_t l = 96, h = 12288, s = 2048, vocab = 51200;
  EXPECT_EQ(12 * l * h * h + 13 * l * h + (vocab + s) * h, 174'615'822'336);
  EXPECT_EQ(CountParameters(*BuiltinConfig("gpt3-175b")), 174'615'822'336 + 2 * h);
}

TEST(Presets, HaveChinchillasShapesWithoutItsRelativePositions) {
  // The paper's N = L(4·d·hk + d·hk + 2·d·ffw) + V·d counts one more d·hk a layer and no norms.
  struct Shape {
    const char* name;
    int64_t layers, d, ffw, heads, kv, n;
  };
  for (const Shape& s : {Shape{"chinchilla-73m", 10, 640, 2560, 10, 64, 73'728'000},
                         Shape{"chinchilla-552m", 24, 1280, 5120, 10, 128, 552'140'800}}) {
    const int64_t norms = (2 * s.layers + 1) * s.d;
    EXPECT_EQ(CountParameters(*BuiltinConfig(s.name)) + s.layers * s.d * s.heads * s.kv - norms,
              s.n)
        << s.name;
  }
}

TEST(Presets, AllPassTheirChecks) {
  for (const Preset& preset : Presets()) EXPECT_NO_THROW(PresetConfig(preset).Check());
  for (const Builtin& builtin : Builtins()) EXPECT_TRUE(BuiltinConfig(builtin.name).ok());
}

TEST(Presets, TakeFieldsOfAnyFamily) {
  const auto config = [](const char* name) {
    return std::get<TransformerConfig>(ValueOrThrow(BuiltinConfig(name)));
  };
  EXPECT_EQ(config("llama-3-8b:layers=4").layers, 4);
  EXPECT_EQ(config("llama-3-8b:layers=4").inner, 14336);
  EXPECT_EQ(config("gemma-2b:attention=composed").attention, AttentionKind::kComposed);
  EXPECT_EQ(config("phi-2:rotary_fraction=0.5,head_bias=false").rotary_fraction, 0.5);
  for (const char* bad :
       {"llama-3-8b:", "llama-3-8b:layers", "llama-3-8b:layers=x", "llama-3-8b:layers=0",
        "llama-3-8b:attention=quick", "llama-3-8b:tied=yes", "llama-3-8b:kv_heads=5"}) {
    EXPECT_EQ(BuiltinConfig(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Presets, SayWhatAFieldTakesAndWhatWasProbablyMeant) {
  const struct {
    const char *name, *message;
  } cases[] = {
      {"llama-3-8b:depth=3", "there is no field 'depth'; did you mean layers?"},
      {"llama-3-8b:ff=5", "did you mean inner?"},
      {"llama-3-8b:hidden_size=5", "did you mean width?"},
      {"llama-3-8b:n_head=5", "did you mean heads?"},
      {"llama-3-8b:widht=5", "did you mean width?"},
      {"llama-3-8b:layers=two", "layers is a whole number, not 'two'"},
      {"llama-3-8b:layers=2.5", "layers is a whole number, not '2.5'"},
      {"llama-3-8b:tied=yes", "tied is true or false, not 'yes'"},
      {"llama-3-8b:eps=small", "eps is a number, not 'small'"},
      {"llama-3-8b:activation=foo", "activation is relu, gelu, gelu_tanh, silu or tanh, not"},
      {"llama-3-8b:rope_scaling=yarn", "rope_scaling is none, linear or llama3, not 'yarn'"},
      {"llama-3-8b:layers=2,layers=3", "layers is given twice"},
      {"vit-b-16:vocab=5", "vocab is of models of tokens"},
      {"vit-b-16:causal=true", "the patches of an image see each other"},
      {"gpt2:rope_theta=5", "rope_theta is of positions=rotary"},
      {"gpt2:classes=5", "classes is of models of images"},
      {"llama-3-8b:expert_inner=5", "expert_inner is of models with experts"},
      {"llama-3-8b:head_dim=3", "head_dim is 3; rotary positions turn pairs"},
      {"llama-3-8b:", "wanted fields after the colon"},
  };
  for (const auto& c : cases) {
    const absl::StatusOr<FamilyConfig> config = BuiltinConfig(c.name);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(config.status().message(), HasSubstr(c.message)) << c.name;
  }
}

void ExpectRefused(const TransformerConfig& config, const char* message) {
  EXPECT_THAT([&] { config.Check(); }, testing::ThrowsMessage<Error>(HasSubstr(message)));
}

TEST(TransformerConfig, NamesWhatDoesNotFit) {
  const auto llama = [](auto change) {
    TransformerConfig config = LlamaDefaults();
    change(config);
    return config;
  };
  ExpectRefused(llama([](auto& c) { c.kv_heads = 5; }), "heads 32 is not a multiple of kv_heads 5");
  ExpectRefused(llama([](auto& c) { c.width = 100; }), "say head_dim where it need not be");
  ExpectRefused(llama([](auto& c) { c.layers = 0; }), "llama: layers is 0");
  ExpectRefused(llama([](auto& c) { c.vocab = int64_t{1} << 41; }), "vocab");
  ExpectRefused(llama([](auto& c) { c.heads = c.head_dim = int64_t{1} << 30; }), "too many");
  ExpectRefused(llama([](auto& c) { c.dropout = 0.1; }), "attention=composed");
  ExpectRefused(llama([](auto& c) { c.experts = 4; }), "have no experts");
  ExpectRefused(llama([](auto& c) { c.qk_norm = true; }), "no checkpoint of it has qk_norm");
  ExpectRefused(llama([](auto& c) { c.positions = PositionKind::kLearned; }), "positions=learned");
  ExpectRefused(llama([](auto& c) { c.placement = NormPlacement::kSandwich; }), "norms");
  ExpectRefused(llama([](auto& c) { c.head = Head::kPooled; }), "head=pooled");
  ExpectRefused(llama([](auto& c) { c.image = 32; }), "patch is 0");
  ExpectRefused(llama([](auto& c) { c.activation = Activation::kRelu; }), "not relu");
  ExpectRefused(llama([](auto& c) { c.rotary_fraction = 0.001; }), "no pair of dims");
  ExpectRefused(llama([](auto& c) { c.eps = -1; }), "eps is -1");
  ExpectRefused(llama([](auto& c) {
                  c.causal = false;
                  c.window = 8;
                }),
                "causal");
  TransformerConfig config = MixtralDefaults();
  config.experts_per_token = 9;
  ExpectRefused(config, "must lie in [1, 8]");
  config.experts = 0;
  ExpectRefused(config, "experts is 0");
  config = VitDefaults();
  config.patch = 15;
  ExpectRefused(config, "image 224 is not a multiple of patch 15");
  config = GptNeoXDefaults();
  config.kv_heads = 8;
  ExpectRefused(config, "a key and a value for each of the 64 heads");
}

// Gemma 2: layers 0, 2, 4, ... see a window, the others everything.
TEST(TransformerConfig, GivesAWindowToEveryPeriodThLayer) {
  const TransformerConfig config = Gemma2Defaults();
  EXPECT_EQ(config.Window(0), 4096);
  EXPECT_EQ(config.Window(1), 0);
  EXPECT_EQ(config.Window(2), 4096);
  EXPECT_EQ(MistralDefaults().Window(1), 4096);
  EXPECT_EQ(LlamaDefaults().Window(0), 0);
}

TEST(TransformerConfig, TurnsAnEvenNumberOfDims) {
  EXPECT_EQ(GptNeoXDefaults().RotaryDim(), 24);  // a quarter of 96
  TransformerConfig phi2 = PhiDefaults();
  phi2.width = 2560;
  phi2.rotary_fraction = 0.4;
  EXPECT_EQ(phi2.RotaryDim(), 32);  // of 80
}

TEST(TransformerConfig, HasItsFieldsApart) {
  // Each field, changed alone, makes a config that no other makes.
  std::vector<TransformerConfig> changed;
  for (const TransformerField& field : TransformerFields()) {
    TransformerConfig config;
    std::visit(
        [&](const auto& member) {
          if constexpr (std::is_same_v<std::decay_t<decltype(member)>, EnumField>) {
            member.set(config, member.get(config) == 0 ? 1 : 0);
          } else if constexpr (std::is_same_v<decltype(config.*member), bool&>) {
            config.*member = !(config.*member);
          } else {
            config.*member += 1;
          }
        },
        field.member);
    EXPECT_FALSE(config == TransformerConfig()) << field.name;
    for (const TransformerConfig& other : changed) EXPECT_FALSE(config == other) << field.name;
    changed.push_back(config);
  }
}

}  // namespace
}  // namespace tally
