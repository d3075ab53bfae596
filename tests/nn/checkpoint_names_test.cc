// The parameters of each family against lists written down from the published checkpoints: names,
// shapes and order of one block of width 8 with 2 heads and 12 inner features.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/nn/transformer.h"
#include "tally/tests/nn/tiny_models.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

Parameters OnMeta() { return Parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta); }

std::vector<std::string> Listed(TransformerConfig config) {
  config.layers = 1;
  Parameters parameters = OnMeta();
  Transformer model(parameters, config);
  std::vector<std::string> listed;
  for (const NamedTensor& p : parameters.named()) {
    const std::string spec = p.tensor.spec().ToString();
    listed.push_back(absl::StrCat(p.name, " ", spec.substr(spec.find('['))));
  }
  return listed;
}

std::vector<std::string> Listed(Family family) { return Listed(Tiny(family)); }

// The blocks of the llama kind, with what the family has beside q_proj, k_proj, ...
std::vector<std::string> LlamaNames(const std::vector<std::string>& attention,
                                    const std::vector<std::string>& mlp,
                                    const std::vector<std::string>& norms, bool tied) {
  std::vector<std::string> names{"model.embed_tokens.weight [11,8]"};
  for (const auto* part : {&attention, &mlp, &norms}) {
    for (const std::string& name : *part) names.push_back("model.layers.0." + name);
  }
  names.push_back("model.norm.weight [8]");
  if (!tied) names.push_back("lm_head.weight [11,8]");
  return names;
}

const std::vector<std::string> kSelfAttention{
    "self_attn.q_proj.weight [8,8]", "self_attn.k_proj.weight [4,8]",
    "self_attn.v_proj.weight [4,8]", "self_attn.o_proj.weight [8,8]"};
const std::vector<std::string> kGatedMlp{"mlp.gate_proj.weight [12,8]", "mlp.up_proj.weight [12,8]",
                                         "mlp.down_proj.weight [8,12]"};
const std::vector<std::string> kTwoNorms{"input_layernorm.weight [8]",
                                         "post_attention_layernorm.weight [8]"};

TEST(CheckpointNames, OfGpt2) {
  EXPECT_THAT(
      Listed(Family::kGpt2),
      ElementsAre("wte.weight [11,8]", "wpe.weight [6,8]", "h.0.ln_1.weight [8]",
                  "h.0.ln_1.bias [8]", "h.0.attn.c_attn.weight [8,24]", "h.0.attn.c_attn.bias [24]",
                  "h.0.attn.c_proj.weight [8,8]", "h.0.attn.c_proj.bias [8]", "h.0.ln_2.weight [8]",
                  "h.0.ln_2.bias [8]", "h.0.mlp.c_fc.weight [8,12]", "h.0.mlp.c_fc.bias [12]",
                  "h.0.mlp.c_proj.weight [12,8]", "h.0.mlp.c_proj.bias [8]", "ln_f.weight [8]",
                  "ln_f.bias [8]"));
}

TEST(CheckpointNames, OfGptNeoX) {
  const std::string block = "gpt_neox.layers.0.";
  EXPECT_THAT(
      Listed(Family::kGptNeoX),
      ElementsAre("gpt_neox.embed_in.weight [11,8]", block + "input_layernorm.weight [8]",
                  block + "input_layernorm.bias [8]", block + "post_attention_layernorm.weight [8]",
                  block + "post_attention_layernorm.bias [8]",
                  block + "attention.query_key_value.weight [24,8]",
                  block + "attention.query_key_value.bias [24]",
                  block + "attention.dense.weight [8,8]", block + "attention.dense.bias [8]",
                  block + "mlp.dense_h_to_4h.weight [12,8]", block + "mlp.dense_h_to_4h.bias [12]",
                  block + "mlp.dense_4h_to_h.weight [8,12]", block + "mlp.dense_4h_to_h.bias [8]",
                  "gpt_neox.final_layer_norm.weight [8]", "gpt_neox.final_layer_norm.bias [8]",
                  "embed_out.weight [11,8]"));
}

TEST(CheckpointNames, OfLlamaAndMistral) {
  const std::vector<std::string> names = LlamaNames(kSelfAttention, kGatedMlp, kTwoNorms, false);
  EXPECT_THAT(Listed(Family::kLlama), ElementsAreArray(names));
  EXPECT_THAT(Listed(Family::kMistral), ElementsAreArray(names));
}

TEST(CheckpointNames, OfQwen2WithBiasesOfQueriesKeysAndValuesOnly) {
  EXPECT_THAT(
      Listed(Family::kQwen2),
      ElementsAreArray(LlamaNames({"self_attn.q_proj.weight [8,8]", "self_attn.q_proj.bias [8]",
                                   "self_attn.k_proj.weight [4,8]", "self_attn.k_proj.bias [4]",
                                   "self_attn.v_proj.weight [4,8]", "self_attn.v_proj.bias [4]",
                                   "self_attn.o_proj.weight [8,8]"},
                                  kGatedMlp, kTwoNorms, false)));
}

// 2 heads of 6 here: wider than the model.
const std::vector<std::string> kWideHeads{
    "self_attn.q_proj.weight [12,8]", "self_attn.k_proj.weight [6,8]",
    "self_attn.v_proj.weight [6,8]", "self_attn.o_proj.weight [8,12]"};

TEST(CheckpointNames, OfQwen3WithItsNorms) {
  std::vector<std::string> attention = kWideHeads;
  attention.push_back("self_attn.q_norm.weight [6]");
  attention.push_back("self_attn.k_norm.weight [6]");
  EXPECT_THAT(Listed(Family::kQwen3),
              ElementsAreArray(LlamaNames(attention, kGatedMlp, kTwoNorms, false)));
}

TEST(CheckpointNames, OfGemmaAndGemma2) {
  EXPECT_THAT(Listed(Family::kGemma),
              ElementsAreArray(LlamaNames(kWideHeads, kGatedMlp, kTwoNorms, true)));
  EXPECT_THAT(Listed(Family::kGemma2),
              ElementsAreArray(LlamaNames(
                  kWideHeads, kGatedMlp,
                  {"input_layernorm.weight [8]", "post_attention_layernorm.weight [8]",
                   "pre_feedforward_layernorm.weight [8]", "post_feedforward_layernorm.weight [8]"},
                  true)));
}

TEST(CheckpointNames, OfPhi3WithPackedProjections) {
  EXPECT_THAT(
      Listed(Family::kPhi3),
      ElementsAreArray(LlamaNames(
          {"self_attn.qkv_proj.weight [16,8]", "self_attn.o_proj.weight [8,8]"},
          {"mlp.gate_up_proj.weight [24,8]", "mlp.down_proj.weight [8,12]"}, kTwoNorms, false)));
}

TEST(CheckpointNames, OfPhiWithBiasesEverywhere) {
  const std::string block = "model.layers.0.";
  EXPECT_THAT(
      Listed(Family::kPhi),
      ElementsAre("model.embed_tokens.weight [11,8]", block + "self_attn.q_proj.weight [8,8]",
                  block + "self_attn.q_proj.bias [8]", block + "self_attn.k_proj.weight [8,8]",
                  block + "self_attn.k_proj.bias [8]", block + "self_attn.v_proj.weight [8,8]",
                  block + "self_attn.v_proj.bias [8]", block + "self_attn.dense.weight [8,8]",
                  block + "self_attn.dense.bias [8]", block + "mlp.fc1.weight [12,8]",
                  block + "mlp.fc1.bias [12]", block + "mlp.fc2.weight [8,12]",
                  block + "mlp.fc2.bias [8]", block + "input_layernorm.weight [8]",
                  block + "input_layernorm.bias [8]", "model.final_layernorm.weight [8]",
                  "model.final_layernorm.bias [8]", "lm_head.weight [11,8]", "lm_head.bias [11]"));
}

std::vector<std::string> BertBody(const std::string& root = "") {
  const std::string block = root + "encoder.layer.0.";
  return {root + "embeddings.word_embeddings.weight [11,8]",
          root + "embeddings.position_embeddings.weight [6,8]",
          root + "embeddings.token_type_embeddings.weight [2,8]",
          root + "embeddings.LayerNorm.weight [8]",
          root + "embeddings.LayerNorm.bias [8]",
          block + "attention.self.query.weight [8,8]",
          block + "attention.self.query.bias [8]",
          block + "attention.self.key.weight [8,8]",
          block + "attention.self.key.bias [8]",
          block + "attention.self.value.weight [8,8]",
          block + "attention.self.value.bias [8]",
          block + "attention.output.dense.weight [8,8]",
          block + "attention.output.dense.bias [8]",
          block + "attention.output.LayerNorm.weight [8]",
          block + "attention.output.LayerNorm.bias [8]",
          block + "intermediate.dense.weight [12,8]",
          block + "intermediate.dense.bias [12]",
          block + "output.dense.weight [8,12]",
          block + "output.dense.bias [8]",
          block + "output.LayerNorm.weight [8]",
          block + "output.LayerNorm.bias [8]"};
}

TEST(CheckpointNames, OfBertWithItsPooler) {
  std::vector<std::string> names = BertBody();
  names.insert(names.end(), {"pooler.dense.weight [8,8]", "pooler.dense.bias [8]"});
  EXPECT_THAT(Listed(Family::kBert), ElementsAreArray(names));
}

TEST(CheckpointNames, OfBertForMaskedTokens) {
  TransformerConfig config = Tiny(Family::kBert);
  config.head = Head::kMaskedLanguageModel;
  std::vector<std::string> names = BertBody("bert.");
  names.insert(
      names.end(),
      {"cls.predictions.bias [11]", "cls.predictions.transform.dense.weight [8,8]",
       "cls.predictions.transform.dense.bias [8]", "cls.predictions.transform.LayerNorm.weight [8]",
       "cls.predictions.transform.LayerNorm.bias [8]"});
  EXPECT_THAT(Listed(config), ElementsAreArray(names));
}

TEST(CheckpointNames, OfOptWithTwoRowsOfPositionsMore) {
  const std::string block = "model.decoder.layers.0.";
  EXPECT_THAT(
      Listed(Family::kOpt),
      ElementsAre(
          "model.decoder.embed_tokens.weight [11,8]", "model.decoder.embed_positions.weight [8,8]",
          block + "self_attn.k_proj.weight [8,8]", block + "self_attn.k_proj.bias [8]",
          block + "self_attn.v_proj.weight [8,8]", block + "self_attn.v_proj.bias [8]",
          block + "self_attn.q_proj.weight [8,8]", block + "self_attn.q_proj.bias [8]",
          block + "self_attn.out_proj.weight [8,8]", block + "self_attn.out_proj.bias [8]",
          block + "self_attn_layer_norm.weight [8]", block + "self_attn_layer_norm.bias [8]",
          block + "fc1.weight [12,8]", block + "fc1.bias [12]", block + "fc2.weight [8,12]",
          block + "fc2.bias [8]", block + "final_layer_norm.weight [8]",
          block + "final_layer_norm.bias [8]", "model.decoder.final_layer_norm.weight [8]",
          "model.decoder.final_layer_norm.bias [8]"));
}

TEST(CheckpointNames, OfOpt350mWithItsProjections) {
  TransformerConfig config = Tiny(Family::kOpt);
  config.embedding_width = 4;
  config.placement = NormPlacement::kPost;
  config.final_norm = false;
  const std::vector<std::string> names = Listed(config);
  EXPECT_EQ(names[0], "model.decoder.embed_tokens.weight [11,4]");
  EXPECT_THAT(names, testing::IsSupersetOf({"model.decoder.project_in.weight [8,4]",
                                            "model.decoder.project_out.weight [4,8]"}));
  EXPECT_THAT(names, testing::Not(testing::Contains("model.decoder.final_layer_norm.weight [8]")));
}

TEST(CheckpointNames, OfVit) {
  const std::string embeddings = "vit.embeddings.", block = "vit.encoder.layer.0.";
  EXPECT_THAT(
      Listed(Family::kVit),
      ElementsAre(
          // 9 patches of 2x2 and the class token.
          embeddings + "cls_token [1,1,8]", embeddings + "position_embeddings [1,10,8]",
          embeddings + "patch_embeddings.projection.weight [8,3,2,2]",
          embeddings + "patch_embeddings.projection.bias [8]",
          block + "attention.attention.query.weight [8,8]",
          block + "attention.attention.query.bias [8]",
          block + "attention.attention.key.weight [8,8]",
          block + "attention.attention.key.bias [8]",
          block + "attention.attention.value.weight [8,8]",
          block + "attention.attention.value.bias [8]",
          block + "attention.output.dense.weight [8,8]", block + "attention.output.dense.bias [8]",
          block + "intermediate.dense.weight [12,8]", block + "intermediate.dense.bias [12]",
          block + "output.dense.weight [8,12]", block + "output.dense.bias [8]",
          block + "layernorm_before.weight [8]", block + "layernorm_before.bias [8]",
          block + "layernorm_after.weight [8]", block + "layernorm_after.bias [8]",
          "vit.layernorm.weight [8]", "vit.layernorm.bias [8]", "classifier.weight [5,8]",
          "classifier.bias [5]"));
}

// The names of the slices of stacked experts, and the stack and place of each.
std::vector<std::string> Slices(TransformerConfig config) {
  config.layers = 1;
  Parameters parameters = OnMeta();
  Transformer model(parameters, config);
  std::vector<std::string> listed;
  for (const ParameterSlice& s : parameters.slices()) {
    listed.push_back(absl::StrCat(s.name, " = ", s.stacked, "[", s.index, "]"));
  }
  return listed;
}

TEST(CheckpointNames, OfMixtralWithExpertsAsSlices) {
  EXPECT_THAT(Listed(Family::kMixtral),
              ElementsAreArray(LlamaNames(kSelfAttention,
                                          {"block_sparse_moe.gate.weight [4,8]",
                                           "block_sparse_moe.experts.w1.weight [4,12,8]",
                                           "block_sparse_moe.experts.w3.weight [4,12,8]",
                                           "block_sparse_moe.experts.w2.weight [4,8,12]"},
                                          kTwoNorms, false)));
  const std::string moe = "model.layers.0.block_sparse_moe.experts.";
  std::vector<std::string> slices;
  for (const char* w : {"w1", "w3", "w2"}) {
    for (int e = 0; e < 4; ++e) {
      slices.push_back(absl::StrCat(moe, e, ".", w, ".weight = ", moe, w, ".weight[", e, "]"));
    }
  }
  EXPECT_THAT(Slices(Tiny(Family::kMixtral)), ElementsAreArray(slices));
}

TEST(CheckpointNames, OfQwen3Moe) {
  std::vector<std::string> attention = kSelfAttention;
  attention.push_back("self_attn.q_norm.weight [4]");
  attention.push_back("self_attn.k_norm.weight [4]");
  EXPECT_THAT(Listed(Family::kQwen3Moe),
              ElementsAreArray(LlamaNames(
                  attention,
                  {"mlp.gate.weight [4,8]", "mlp.experts.gate_proj.weight [4,5,8]",
                   "mlp.experts.up_proj.weight [4,5,8]", "mlp.experts.down_proj.weight [4,8,5]"},
                  kTwoNorms, false)));
  EXPECT_THAT(Slices(Tiny(Family::kQwen3Moe)),
              testing::Contains("model.layers.0.mlp.experts.3.down_proj.weight = "
                                "model.layers.0.mlp.experts.down_proj.weight[3]"));
}

}  // namespace
}  // namespace tally
