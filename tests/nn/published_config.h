// A published config.json as a TransformerConfig, for the tests: the keys that the reference cases
// use, each with the field it sets. Keys differ between families where their classes do.
#ifndef TALLY_TESTS_NN_PUBLISHED_CONFIG_H_
#define TALLY_TESTS_NN_PUBLISHED_CONFIG_H_

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tally/nn/transformer_config.h"

namespace tally {

using Json = nlohmann::json;

// As SetField takes it.
inline std::string TextOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The fields whose value is the key's own.
inline const std::map<std::string, std::vector<const char*>>& PublishedFields() {
  static const auto* const fields = new std::map<std::string, std::vector<const char*>>{
      {"vocab_size", {"vocab"}},
      {"n_positions", {"context"}},
      {"max_position_embeddings", {"context"}},
      {"n_embd", {"width"}},
      {"hidden_size", {"width"}},
      {"n_layer", {"layers"}},
      {"num_hidden_layers", {"layers"}},
      {"n_head", {"heads"}},
      {"num_attention_heads", {"heads"}},
      {"num_key_value_heads", {"kv_heads"}},
      {"head_dim", {"head_dim"}},
      {"n_inner", {"inner"}},
      {"intermediate_size", {"inner"}},
      {"ffn_dim", {"inner"}},
      {"layer_norm_epsilon", {"eps"}},
      {"layer_norm_eps", {"eps"}},
      {"rms_norm_eps", {"eps"}},
      {"rope_theta", {"rope_theta"}},
      {"rotary_emb_base", {"rope_theta"}},
      {"rotary_pct", {"rotary_fraction"}},
      {"partial_rotary_factor", {"rotary_fraction"}},
      {"attention_bias", {"qkv_bias", "out_bias"}},
      {"mlp_bias", {"mlp_bias"}},
      {"tie_word_embeddings", {"tied"}},
      {"sliding_window", {"window"}},
      {"attn_logit_softcapping", {"attention_softcap"}},
      {"final_logit_softcapping", {"final_softcap"}},
      {"num_local_experts", {"experts"}},
      {"num_experts", {"experts"}},
      {"num_experts_per_tok", {"experts_per_token"}},
      {"moe_intermediate_size", {"expert_inner"}},
      {"norm_topk_prob", {"renormalise_experts"}},
      {"type_vocab_size", {"token_types"}},
      {"image_size", {"image"}},
      {"patch_size", {"patch"}},
      {"num_channels", {"channels"}},
      {"num_labels", {"classes"}},
  };
  return *fields;
}

inline void SetRopeScaling(const Json& scaling, TransformerConfig* config) {
  const std::map<std::string, std::string> fields = {
      {"rope_type", "rope_scaling"},
      {"factor", "rope_factor"},
      {"low_freq_factor", "rope_low_frequency"},
      {"high_freq_factor", "rope_high_frequency"},
      {"original_max_position_embeddings", "rope_original_context"}};
  for (const auto& [key, value] : scaling.items()) {
    ASSERT_TRUE(fields.count(key)) << key;
    ASSERT_TRUE(SetField(*config, fields.at(key), TextOf(value))) << key;
  }
}

// Keys that say in one word what several fields do. False for a key of another kind.
inline bool SetSpecial(const std::string& key, const Json& value, TransformerConfig* config) {
  if (key == "hidden_act" || key == "hidden_activation" || key == "activation_function") {
    const std::string name = value;
    const bool tanh = name == "gelu_new" || name == "gelu_pytorch_tanh";
    return ActivationFromName(tanh ? "gelu_tanh" : name, &config->activation);
  }
  if (key == "use_parallel_residual") {
    config->placement = value.get<bool>() ? NormPlacement::kParallel : NormPlacement::kPre;
    return true;
  }
  if (key == "do_layer_norm_before") {
    config->placement = value.get<bool>() ? NormPlacement::kPre : NormPlacement::kPost;
    config->final_norm = value.get<bool>();
    return true;
  }
  if (key == "query_pre_attn_scalar") {
    config->attention_scale = 1 / std::sqrt(value.get<double>());
    return true;
  }
  if (key == "architectures") {
    config->head = value[0] == "BertForMaskedLM" ? Head::kMaskedLanguageModel : Head::kPooled;
    return value[0] == "BertForMaskedLM" || value[0] == "BertModel";
  }
  // What every checkpoint of the family has.
  return (key == "enable_bias" || key == "qkv_bias") ? value.get<bool>()
         : key == "qk_layernorm"                     ? !value.get<bool>()
                                                     : false;
}

// Starts from the family's defaults. A key it does not know fails the test.
inline TransformerConfig PublishedConfig(const Json& json) {
  TransformerConfig config;
  Family family;
  const std::string type = json["model_type"];
  EXPECT_TRUE(FamilyFromName(type, &family)) << type;
  config = FamilyDefaults(family);
  for (const auto& [key, value] : json.items()) {
    if (key == "model_type" || key == "lora_rank" || key == "lora_alpha" || key == "documents") {
      continue;  // the first is used, the others are no part of a config
    }
    if (key == "rope_scaling") {
      SetRopeScaling(value, &config);
    } else if (key == "word_embed_proj_dim") {
      config.embedding_width = value == json["hidden_size"] ? 0 : value.get<int64_t>();
    } else if (const auto at = PublishedFields().find(key); at != PublishedFields().end()) {
      for (const char* field : at->second) {
        EXPECT_TRUE(SetField(config, field, TextOf(value))) << key;
      }
    } else {
      EXPECT_TRUE(SetSpecial(key, value, &config)) << key << ": " << value;
    }
  }
  return config;
}

}  // namespace tally

#endif  // TALLY_TESTS_NN_PUBLISHED_CONFIG_H_
