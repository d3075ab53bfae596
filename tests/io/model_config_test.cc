#include "tally/io/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tally/tensor/check.h"
#include "tally/tests/nn/tiny_models.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string Refusal(absl::string_view text) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  return config.ok() ? "accepted" : std::string(config.status().message());
}

TEST(ModelConfig, WritesGpt2AsBefore) {
  EXPECT_EQ(ModelConfigJson({.family = Gpt2Defaults()}),
            R"({"family":"gpt2","vocab":50257,"context":1024,"width":768,"layers":12,"heads":12,)"
            R"("inner":3072,"dropout":0.0,"eps":1e-05})");
}

TEST(ModelConfig, ReadsBackEveryFamily) {
  for (Family family : AllFamilies()) {
    for (TransformerConfig config : {Tiny(family), FamilyDefaults(family)}) {
      config.inner = config.Inner();  // written out
      const std::string text = ModelConfigJson({.family = config});
      const ModelConfig back = ValueOrThrow(ParseModelConfig(text));
      EXPECT_EQ(std::get<TransformerConfig>(back.family), config) << text;
    }
  }
}

TEST(ModelConfig, ReadsBackEveryBuiltin) {
  for (const Builtin& builtin : Builtins()) {
    const FamilyConfig config = ValueOrThrow(BuiltinConfig(builtin.name));
    const std::string text = ModelConfigJson({.family = config});
    const ModelConfig back = ValueOrThrow(ParseModelConfig(text));
    EXPECT_EQ(ModelConfigJson(back), text);
    EXPECT_EQ(CountParameters(back.family), CountParameters(config)) << builtin.name;
  }
}

TEST(ModelConfig, KeepsTheRun) {
  ModelConfig config{.family = Tiny(Family::kLlama), .batch = 4, .sequence = 6};
  config.policy = *FindPolicy("mixed");
  config.optimizer = "adamw";
  config.documents = {4, 2};
  config.lora = {.rank = 3, .alpha = 6, .targets = "(q|k)_proj", .seed = 7};
  const ModelConfig back = ValueOrThrow(ParseModelConfig(ModelConfigJson(config)));
  EXPECT_EQ(back.batch, 4);
  EXPECT_EQ(back.sequence, 6);
  EXPECT_STREQ(back.policy->name, "mixed");
  EXPECT_EQ(back.policy->master, true);
  EXPECT_EQ(back.documents, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(back.lora.rank, 3);
  EXPECT_EQ(back.lora.alpha, 6);
  EXPECT_THAT(
      back.lora.layers,
      testing::ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                           "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj"));
  EXPECT_EQ(back.lora.seed, 7u);
}

TEST(ModelConfig, NamesTheKeyThatIsWrong) {
  const std::string good = ModelConfigJson({.family = Tiny(Family::kMixtral)});
  ASSERT_TRUE(ParseModelConfig(good).ok());
  const auto with = [&](absl::string_view from, absl::string_view to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(text, good) << from;
    return Refusal(text);
  };
  EXPECT_THAT(with("\"width\":8", "\"width\":\"8\""), HasSubstr("\"width\" must be an integer"));
  EXPECT_THAT(with("\"width\":8", "\"width\":-8"), HasSubstr("\"width\" must be an integer"));
  EXPECT_THAT(with("\"width\":8,", ""), HasSubstr("\"width\" is missing"));
  EXPECT_THAT(with("\"layers\":2", "\"layers\":10001"), HasSubstr("\"layers\""));
  EXPECT_THAT(with("\"heads\":2", "\"heads\":3"), HasSubstr("not a multiple"));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":1"), HasSubstr("experts_per_token"));
  EXPECT_THAT(with("\"experts\":4", "\"specialists\":4"), HasSubstr("\"specialists\""));
  EXPECT_THAT(with("\"mixtral\"", "\"mixtrall\""), HasSubstr("no family \"mixtrall\""));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"norm\":\"batch_norm\""),
              HasSubstr("\"norm\" must be one of layer_norm, rms_norm"));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"tied\":1"), HasSubstr("true or false"));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"rope_theta\":0"), HasSubstr("rope_theta"));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"lora\":4"), HasSubstr("\"lora\""));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"lora\":{\"rank\":1,\"layers\":[\"x\"]}"),
              HasSubstr("none of these layers"));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"lora\":{\"rank\":0}"), HasSubstr("\"rank\""));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"lora\":{\"rank\":1,\"layers\":[1]}"),
              HasSubstr("\"layers\" must be a list of strings"));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"lora\":{\"rank\":1,\"targets\":\"(\"}"),
              HasSubstr("\"targets\""));
  EXPECT_THAT(with("\"experts\":4", "\"experts\":4,\"documents\":[3,0]"),
              HasSubstr("\"documents\""));
}

// Sizes that overflow a product, or that would be too much to make, are found without memory.
TEST(ModelConfig, TakesNoTimeForSizesOfAnySize) {
  for (const char* size : {"1099511627776", "1099511627775", "4294967296", "1048576"}) {
    for (const char* key : {"vocab", "context", "width", "heads", "inner", "experts", "kv_heads",
                            "head_dim", "expert_inner", "window", "experts_per_token"}) {
      ModelConfig config{.family = Tiny(Family::kMixtral)};
      std::string text = ModelConfigJson(config);
      text.pop_back();
      const size_t at = text.find(absl::StrCat("\"", key, "\":"));
      if (at == std::string::npos) {
        absl::StrAppend(&text, ",\"", key, "\":", size);
      } else {
        const size_t begin = at + absl::string_view(key).size() + 3;
        text.replace(begin, text.find_first_of(",}", begin) - begin, size);
      }
      ParseModelConfig(text + "}").IgnoreError();
    }
  }
}

// No byte changed, left out or cut off makes anything but a config or an error.
TEST(ModelConfig, SurvivesDamage) {
  ModelConfig config{.family = Tiny(Family::kGemma2), .documents = {4, 2}, .lora = {.rank = 2}};
  const std::string good = ModelConfigJson(config);
  int accepted = 0, refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char byte : {'\0', '"', '{', '}', '[', ',', '0', '9', '-', 'x', '\xff'}) {
      std::string text = good;
      text[i] = byte;
      ++(ParseModelConfig(text).ok() ? accepted : refused);
    }
    EXPECT_FALSE(ParseModelConfig(good.substr(0, i)).ok());
    ++(ParseModelConfig(good.substr(0, i) + good.substr(i + 1)).ok() ? accepted : refused);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 10 * static_cast<int>(good.size()) / 2);
}

}  // namespace
}  // namespace tally
