#include "tally/nn/presets.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/nn/nearest.h"
#include "tally/tensor/check.h"

namespace tally {

absl::Span<const Preset> Presets() {
  // Sources: the config.json of each model. gpt3-175b is arXiv:2104.04473's, whose parameter
  // formula 12lh² + 13lh + (V+s)h leaves out the final norm's 2h; cs336-* are GPT-2's shapes in the
  // course's form (SwiGLU, RMSNorm, RoPE, untied, no biases); chinchilla-* arXiv:2203.15556's table
  // A9 without the projection of relative positions, d·heads·head_dim a layer.
  static constexpr Preset kPresets[] = {
      {"gpt2", Family::kGpt2, "", "GPT-2 small"},
      {"gpt2-medium", Family::kGpt2, "width=1024,layers=24,heads=16", "GPT-2 medium"},
      {"gpt2-large", Family::kGpt2, "width=1280,layers=36,heads=20", "GPT-2 large"},
      {"gpt2-xl", Family::kGpt2, "width=1600,layers=48,heads=25", "GPT-2 XL"},
      {"distilgpt2", Family::kGpt2, "layers=6", "DistilGPT-2"},
      {"gpt3-175b", Family::kGpt2, "vocab=51200,context=2048,width=12288,layers=96,heads=96",
       "Megatron's GPT-3"},
      {"cs336-gpt2-small", Family::kLlama,
       "vocab=50257,context=1024,width=768,layers=12,heads=12,inner=3072,eps=1e-5",
       "CS336's GPT-2 small"},
      {"cs336-gpt2-xl", Family::kLlama,
       "vocab=50257,context=1024,width=1600,layers=48,heads=25,inner=6400,eps=1e-5",
       "CS336's GPT-2 XL"},
      {"pythia-14m", Family::kGptNeoX, "vocab=50304,width=128,layers=6,heads=4,inner=512",
       "Pythia 14M"},
      {"pythia-70m", Family::kGptNeoX, "vocab=50304,width=512,layers=6,heads=8,inner=2048",
       "Pythia 70M"},
      {"pythia-160m", Family::kGptNeoX, "vocab=50304,width=768,layers=12,heads=12,inner=3072",
       "Pythia 160M"},
      {"pythia-6.9b", Family::kGptNeoX, "width=4096,layers=32,heads=32,inner=16384", "Pythia 6.9B"},
      {"pythia-12b", Family::kGptNeoX, "vocab=50688,width=5120,layers=36,heads=40,inner=20480",
       "Pythia 12B"},
      {"gpt-neox-20b", Family::kGptNeoX, "", "GPT-NeoX 20B"},
      {"llama-2-7b", Family::kLlama, "context=4096,eps=1e-5", "Llama 2 7B"},
      {"llama-2-13b", Family::kLlama,
       "context=4096,width=5120,layers=40,heads=40,inner=13824,eps=1e-5", "Llama 2 13B"},
      {"llama-2-70b", Family::kLlama,
       "context=4096,width=8192,layers=80,heads=64,kv_heads=8,inner=28672,eps=1e-5", "Llama 2 70B"},
      {"llama-3-8b", Family::kLlama,
       "vocab=128256,context=8192,kv_heads=8,inner=14336,eps=1e-5,rope_theta=5e5", "Llama 3 8B"},
      {"llama-3-70b", Family::kLlama,
       "vocab=128256,context=8192,width=8192,layers=80,heads=64,kv_heads=8,inner=28672,eps=1e-5,"
       "rope_theta=5e5",
       "Llama 3 70B"},
      {"llama-3.1-8b", Family::kLlama,
       "vocab=128256,context=131072,kv_heads=8,inner=14336,eps=1e-5,rope_theta=5e5,"
       "rope_scaling=llama3,rope_factor=8",
       "Llama 3.1 8B"},
      {"llama-3.1-405b", Family::kLlama,
       "vocab=128256,context=131072,width=16384,layers=126,heads=128,kv_heads=8,inner=53248,"
       "eps=1e-5,rope_theta=5e5,rope_scaling=llama3,rope_factor=8",
       "Llama 3.1 405B"},
      {"llama-3.2-1b", Family::kLlama,
       "vocab=128256,context=131072,width=2048,layers=16,heads=32,kv_heads=8,inner=8192,eps=1e-5,"
       "rope_theta=5e5,rope_scaling=llama3,rope_factor=32,tied=true",
       "Llama 3.2 1B"},
      {"llama-3.2-3b", Family::kLlama,
       "vocab=128256,context=131072,width=3072,layers=28,heads=24,kv_heads=8,inner=8192,eps=1e-5,"
       "rope_theta=5e5,rope_scaling=llama3,rope_factor=32,tied=true",
       "Llama 3.2 3B"},
      {"tinyllama-1.1b", Family::kLlama,
       "width=2048,layers=22,heads=32,kv_heads=4,inner=5632,eps=1e-5", "TinyLlama 1.1B"},
      {"smollm2-135m", Family::kLlama,
       "vocab=49152,context=8192,width=576,layers=30,heads=9,kv_heads=3,inner=1536,eps=1e-5,"
       "rope_theta=1e5,tied=true",
       "SmolLM2 135M"},
      {"mistral-7b-v0.1", Family::kMistral, "context=32768,eps=1e-5", "Mistral 7B v0.1"},
      {"mistral-7b-v0.3", Family::kMistral,
       "vocab=32768,context=32768,eps=1e-5,rope_theta=1e6,window=0", "Mistral 7B v0.3"},
      {"mixtral-8x7b", Family::kMixtral, "context=32768", "Mixtral, 2 of 8 experts"},
      {"qwen2-0.5b", Family::kQwen2,
       "context=131072,width=896,layers=24,heads=14,kv_heads=2,inner=4864,rope_theta=1e6,"
       "tied=true",
       "Qwen2 0.5B"},
      {"qwen2.5-1.5b", Family::kQwen2,
       "context=131072,width=1536,layers=28,heads=12,kv_heads=2,inner=8960,rope_theta=1e6,"
       "tied=true",
       "Qwen2.5 1.5B"},
      {"qwen2.5-32b", Family::kQwen2,
       "vocab=152064,context=131072,width=5120,layers=64,heads=40,kv_heads=8,inner=27648,eps=1e-5,"
       "rope_theta=1e6",
       "Qwen2.5 32B"},
      {"qwen2.5-72b", Family::kQwen2,
       "vocab=152064,context=131072,width=8192,layers=80,heads=64,kv_heads=8,inner=29568,eps=1e-5,"
       "rope_theta=1e6",
       "Qwen2.5 72B"},
      {"qwen3-0.6b", Family::kQwen3,
       "context=40960,width=1024,layers=28,heads=16,kv_heads=8,inner=3072,rope_theta=1e6,"
       "tied=true",
       "Qwen3 0.6B"},
      {"qwen3-1.7b", Family::kQwen3,
       "context=40960,width=2048,layers=28,heads=16,kv_heads=8,inner=6144,rope_theta=1e6,"
       "tied=true",
       "Qwen3 1.7B"},
      {"qwen3-4b", Family::kQwen3,
       "context=40960,width=2560,layers=36,heads=32,kv_heads=8,inner=9728,rope_theta=1e6,"
       "tied=true",
       "Qwen3 4B"},
      {"qwen3-30b-a3b", Family::kQwen3Moe,
       "context=40960,layers=48,head_dim=128,rope_theta=1e6,renormalise_experts=true",
       "Qwen3, 8 of 128 experts"},
      {"gemma-2b", Family::kGemma, "width=2048,layers=18,heads=8,kv_heads=1,inner=16384",
       "Gemma 2B"},
      {"gemma-7b", Family::kGemma, "", "Gemma 7B"},
      {"gemma-2-2b", Family::kGemma2, "", "Gemma 2 2B"},
      {"gemma-2-9b", Family::kGemma2, "width=3584,layers=42,heads=16,kv_heads=8,inner=14336",
       "Gemma 2 9B"},
      {"phi-1.5", Family::kPhi, "", "Phi-1.5"},
      {"phi-2", Family::kPhi, "width=2560,layers=32,heads=32,inner=10240,rotary_fraction=0.4",
       "Phi-2"},
      {"phi-3-mini", Family::kPhi3, "window=2047", "Phi-3-mini 4k"},
      {"opt-125m", Family::kOpt, "", "OPT 125M"},
      {"opt-350m", Family::kOpt,
       "width=1024,layers=24,heads=16,inner=4096,embedding_width=512,placement=post,"
       "final_norm=false",
       "OPT 350M"},
      {"opt-6.7b", Family::kOpt, "width=4096,layers=32,heads=32,inner=16384", "OPT 6.7B"},
      {"chinchilla-73m", Family::kLlama,
       "context=2048,width=640,layers=10,heads=10,head_dim=64,inner=2560,gated=false,tied=true,"
       "positions=none",
       "Chinchilla's 73M"},
      {"chinchilla-552m", Family::kLlama,
       "context=2048,width=1280,layers=24,heads=10,head_dim=128,inner=5120,gated=false,tied=true,"
       "positions=none",
       "Chinchilla's 552M"},
      {"chinchilla-70b", Family::kLlama,
       "context=2048,width=8192,layers=80,heads=64,head_dim=128,inner=32768,gated=false,tied=true,"
       "positions=none",
       "Chinchilla 70B"},
      {"bert-base", Family::kBert, "", "BERT base"},
      {"bert-large", Family::kBert, "width=1024,layers=24,heads=16,inner=4096", "BERT large"},
      {"all-minilm-l6-v2", Family::kBert, "width=384,layers=6,inner=1536", "MiniLM"},
      {"vit-b-16", Family::kVit, "", "ViT-B/16"},
      {"vit-l-16", Family::kVit, "width=1024,layers=24,heads=16,inner=4096", "ViT-L/16"},
  };
  return kPresets;
}

namespace {

// What others call a field.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"d", "width"},
    {"d_model", "width"},
    {"dim", "width"},
    {"n_embd", "width"},
    {"hidden_size", "width"},
    {"hidden", "width"},
    {"ff", "inner"},
    {"d_ff", "inner"},
    {"ffn", "inner"},
    {"n_inner", "inner"},
    {"ffn_dim", "inner"},
    {"intermediate_size", "inner"},
    {"L", "layers"},
    {"depth", "layers"},
    {"n_layer", "layers"},
    {"n_layers", "layers"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"n_head", "heads"},
    {"n_heads", "heads"},
    {"H", "heads"},
    {"num_attention_heads", "heads"},
    {"n_kv_heads", "kv_heads"},
    {"num_key_value_heads", "kv_heads"},
    {"vocab_size", "vocab"},
    {"n_vocab", "vocab"},
    {"n_ctx", "context"},
    {"n_positions", "context"},
    {"seq", "context"},
    {"max_position_embeddings", "context"},
    {"act", "activation"},
    {"hidden_act", "activation"},
    {"num_experts", "experts"},
    {"top_k", "experts_per_token"},
    {"theta", "rope_theta"},
    {"sliding_window", "window"},
    {"tie_word_embeddings", "tied"},
};

std::string ProbableField(absl::string_view name) {
  for (const auto& [other, field] : kOtherNames) {
    if (name == other) return field;
  }
  std::vector<std::string> names;
  for (const TransformerField& field : TransformerFields()) names.push_back(field.name);
  return Nearest(name, names);
}

const TransformerField* FindField(absl::string_view name) {
  for (const TransformerField& field : TransformerFields()) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

}  // namespace

std::string FieldValues(const TransformerField& field) {
  struct Values {
    std::string operator()(int64_t TransformerConfig::*) const { return "a whole number"; }
    std::string operator()(double TransformerConfig::*) const { return "a number"; }
    std::string operator()(bool TransformerConfig::*) const { return "true or false"; }
    std::string operator()(const EnumField& names) const {
      std::string text;
      for (int i = 0; names.names[i] != nullptr; ++i) {
        const char* between = names.names[i + 1] == nullptr ? " or " : ", ";
        absl::StrAppend(&text, i == 0 ? "" : between, names.names[i]);
      }
      return text;
    }
  };
  return std::visit(Values(), field.member);
}

absl::Status SetFields(TransformerConfig& config, absl::string_view fields) {
  std::vector<absl::string_view> seen;
  for (absl::string_view part : absl::StrSplit(fields, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto [name, value] = pair;
    const TransformerField* field = FindField(name);
    if (field == nullptr) {
      const std::string near = ProbableField(name);
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no field '", name, "'",
          near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
          "; wanted fields as in layers=2,width=128, which graph-report --list-models lists"));
    }
    if (!SetField(config, name, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", FieldValues(*field), ", not '", value, "'"));
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is given twice"));
    }
    seen.push_back(name);
  }
  return absl::OkStatus();
}

absl::Status CheckFieldsAreUsed(const TransformerConfig& c, absl::string_view fields) {
  const struct {
    bool used;
    const char* of;
    std::vector<absl::string_view> names;
  } groups[] = {
      {!c.takes_images(), "of models of tokens", {"vocab", "context", "tied", "embedding_width"}},
      {c.takes_images(), "of models of images", {"patch", "channels", "classes", "class_token"}},
      {c.positions == PositionKind::kRotary,
       "of positions=rotary",
       {"rotary_fraction", "rope_theta", "rope_interleaved", "rope_scaling", "rope_factor",
        "rope_low_frequency", "rope_high_frequency", "rope_original_context"}},
      {c.positions == PositionKind::kLearned, "of positions=learned", {"position_offset"}},
      {c.rope_scaling != RopeScaling::kNone, "of rope_scaling=linear or llama3", {"rope_factor"}},
      {c.rope_scaling == RopeScaling::kLlama3,
       "of rope_scaling=llama3",
       {"rope_low_frequency", "rope_high_frequency", "rope_original_context"}},
      {c.window > 0, "of models with a window", {"window_period"}},
      {c.experts > 0,
       "of models with experts",
       {"experts_per_token", "expert_inner", "renormalise_experts"}},
  };
  for (absl::string_view part : absl::StrSplit(fields, ',', absl::SkipEmpty())) {
    const absl::string_view name = part.substr(0, part.find('='));
    for (const auto& group : groups) {
      if (group.used || !absl::c_linear_search(group.names, name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", group.of, "; this one does not use it"));
    }
  }
  return absl::OkStatus();
}

TransformerConfig PresetConfig(const Preset& preset) {
  TransformerConfig config = FamilyDefaults(preset.family);
  const absl::Status status = SetFields(config, preset.fields);
  TALLY_CHECK(status.ok()) << preset.name << ": " << std::string(status.message());
  return config;
}

}  // namespace tally
