#include "tally/nn/transformer_config.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tally/nn/checkpoint_layout.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

using Config = TransformerConfig;

constexpr int64_t kMaxSize = int64_t{1} << 40;
constexpr int64_t kMaxEdge = int64_t{1} << 20;  // its square is a number of patches

[[noreturn]] void Refuse(const Config& c, const std::string& message) {
  ThrowInvalid(absl::StrCat(Name(c.family), ": ", message));
}

void CheckSize(const Config& c, const char* name, int64_t value, int64_t max = kMaxSize) {
  if (value < 1) Refuse(c, absl::StrCat(name, " is ", value, "; it must be 1 or more"));
  if (value > max) Refuse(c, absl::StrCat(name, " is ", value, "; it must be at most ", max));
}

void CheckSizes(const Config& c) {
  CheckSize(c, "width", c.width);
  CheckSize(c, "layers", c.layers);
  CheckSize(c, "heads", c.heads);
  CheckSize(c, "inner", c.Inner());
  for (const auto& [name, value] : {std::pair{"kv_heads", c.kv_heads},
                                    {"head_dim", c.head_dim},
                                    {"inner", c.inner},
                                    {"position_offset", c.position_offset},
                                    {"embedding_width", c.embedding_width},
                                    {"window", c.window},
                                    {"experts", c.experts},
                                    {"expert_inner", c.expert_inner},
                                    {"token_types", c.token_types},
                                    {"image", c.image}}) {
    if (value < 0 || value > kMaxSize) {
      Refuse(c, absl::StrCat(name, " is ", value, "; it must lie in [0, ", kMaxSize, "]"));
    }
  }
  CheckSize(c, "window_period", c.window_period);
  if (c.takes_images()) {
    CheckSize(c, "image", c.image, kMaxEdge);
    CheckSize(c, "patch", c.patch, kMaxEdge);
    CheckSize(c, "channels", c.channels);
    CheckSize(c, "classes", c.classes);
    if (c.image % c.patch != 0) {
      Refuse(c, absl::StrCat("image ", c.image, " is not a multiple of patch ", c.patch));
    }
  } else {
    CheckSize(c, "vocab", c.vocab);
    CheckSize(c, "context", c.context);
  }
}

void CheckHeads(const Config& c) {
  if (c.head_dim == 0 && c.width % c.heads != 0) {
    Refuse(c, absl::StrCat("width ", c.width, " is not a multiple of heads ", c.heads,
                           "; say head_dim where it need not be"));
  }
  if (c.heads % c.KvHeads() != 0) {
    Refuse(c, absl::StrCat("heads ", c.heads, " is not a multiple of kv_heads ", c.KvHeads()));
  }
  if (c.heads > kMaxSize / c.HeadDim()) {
    Refuse(c, absl::StrCat("heads ", c.heads, " of ", c.HeadDim(), " are too many"));
  }
  if (LayoutOf(c).packing == QkvPacking::kPerHead && c.KvHeads() != c.heads) {
    Refuse(c, absl::StrCat("kv_heads is ", c.KvHeads(),
                           "; its checkpoints keep a key and a value for each of the ", c.heads,
                           " heads"));
  }
  if (c.positions == PositionKind::kRotary && c.HeadDim() % 2 != 0) {
    Refuse(c, absl::StrCat("head_dim is ", c.HeadDim(),
                           "; rotary positions turn pairs, so it must be even"));
  }
  if (c.positions == PositionKind::kRotary && c.RotaryDim() < 2) {
    Refuse(c, absl::StrCat("rotary_fraction ", c.rotary_fraction, " of a head of ", c.HeadDim(),
                           " leaves no pair of dims to turn"));
  }
}

void CheckNumbers(const Config& c) {
  const auto check = [&](const char* name, double value, bool good, const char* wanted) {
    if (!good || !std::isfinite(value)) {
      Refuse(c, absl::StrCat(name, " is ", value, "; it must ", wanted));
    }
  };
  check("dropout", c.dropout, c.dropout >= 0 && c.dropout < 1, "lie in [0, 1)");
  check("eps", c.eps, c.eps >= 0, "be 0 or more");
  check("norm_offset", c.norm_offset, true, "be finite");
  check("rotary_fraction", c.rotary_fraction, c.rotary_fraction > 0 && c.rotary_fraction <= 1,
        "lie in (0, 1]");
  check("rope_theta", c.rope_theta, c.rope_theta > 0, "be above 0");
  check("rope_factor", c.rope_factor, c.rope_factor > 0, "be above 0");
  check("rope_low_frequency", c.rope_low_frequency, c.rope_low_frequency > 0, "be above 0");
  check("rope_high_frequency", c.rope_high_frequency, c.rope_high_frequency > c.rope_low_frequency,
        "be above rope_low_frequency");
  CheckSize(c, "rope_original_context", c.rope_original_context);
  check("attention_scale", c.attention_scale, c.attention_scale >= 0, "be 0 or more");
  check("attention_softcap", c.attention_softcap, c.attention_softcap >= 0, "be 0 or more");
  check("final_softcap", c.final_softcap, c.final_softcap >= 0, "be 0 or more");
  if (c.dropout > 0 && c.attention == AttentionKind::kFused) {
    Refuse(c, absl::StrCat("dropout is ", c.dropout,
                           "; fused attention keeps no weights to drop: attention=composed does"));
  }
  if (c.causal && c.takes_images()) {
    Refuse(c, "causal is true; the patches of an image see each other");
  }
  if (c.window > 0 && !c.causal) Refuse(c, "a window is of causal attention");
  if (c.norm_offset != 0 && c.norm == NormKind::kLayerNorm) {
    Refuse(c, "norm_offset is of norm=rms_norm");
  }
}

void CheckExperts(const Config& c) {
  if ((c.experts > 0) != (LayoutOf(c).router != nullptr)) {
    Refuse(c, c.experts > 0 ? "its checkpoints have no experts"
                            : "experts is 0; its checkpoints have experts in every block");
  }
  if (c.experts == 0) return;
  if (c.experts_per_token < 1 || c.experts_per_token > c.experts) {
    Refuse(c, absl::StrCat("experts_per_token is ", c.experts_per_token, "; it must lie in [1, ",
                           c.experts, "]"));
  }
  if (!c.gated || c.mlp_bias) Refuse(c, "experts are gated and without bias");
}

// What the config asks for must have a name in the family's checkpoints.
void CheckParts(const Config& c) {
  const CheckpointLayout& layout = LayoutOf(c);
  const int norms = c.placement == NormPlacement::kSandwich         ? 4
                    : c.placement == NormPlacement::kParallelShared ? 1
                                                                    : 2;
  const struct {
    bool wanted;
    const char* path;
    const char* what;
  } parts[] = {
      {c.positions == PositionKind::kLearned, layout.positions, "positions=learned"},
      {c.token_types > 0, layout.token_types, "token_types"},
      {c.embedding_norm, layout.embedding_norm, "embedding_norm"},
      {c.embedding_width > 0, layout.project_in, "embedding_width"},
      {c.final_norm, layout.final_norm, "final_norm"},
      {c.qk_norm, layout.q_norm, "qk_norm"},
      {c.gated && c.experts == 0, layout.gate_up != nullptr ? layout.gate_up : layout.gate,
       "gated"},
      {!c.gated, layout.up, "gated=false"},
      {true, layout.norms[norms - 1], "the norms of this placement"},
      {c.head == Head::kMaskedLanguageModel, layout.pooler, "head=masked_language_model"},
      {c.head == Head::kPooled, layout.pooler, "head=pooled"},
      {c.takes_images() && c.class_token, layout.class_token, "class_token"},
  };
  for (const auto& part : parts) {
    if (part.wanted && part.path == nullptr) {
      Refuse(c, absl::StrCat("no checkpoint of it has ", part.what));
    }
  }
  if (c.takes_images() != (c.head == Head::kClasses) ||
      c.takes_images() != (c.family == Family::kVit)) {
    Refuse(c, "images, the head of classes and the family vit go together");
  }
  if (c.gated && !HasGate(c.activation)) {
    Refuse(c, absl::StrCat("gated layers have silu, gelu or gelu_tanh, not ", Name(c.activation)));
  }
}

template <auto member, const char* const* names>
constexpr EnumField MakeEnum() {
  return {[](const Config& c) { return static_cast<uint8_t>(c.*member); },
          [](Config& c, uint8_t value) {
            c.*member = static_cast<std::remove_reference_t<decltype(c.*member)>>(value);
          },
          names};
}

constexpr const char* kNormNames[] = {"layer_norm", "rms_norm", nullptr};
constexpr const char* kPlacementNames[] = {"pre",      "post", "parallel", "parallel_shared",
                                           "sandwich", nullptr};
constexpr const char* kPositionNames[] = {"none", "learned", "rotary", nullptr};
constexpr const char* kScalingNames[] = {"none", "linear", "llama3", nullptr};
constexpr const char* kHeadNames[] = {"language_model", "masked_language_model", "pooled",
                                      "classes", nullptr};

}  // namespace

const char* Name(Family family) { return kFamilyNames[static_cast<int>(family)]; }

bool FamilyFromName(absl::string_view name, Family* family) {
  for (int i = 0; kFamilyNames[i] != nullptr; ++i) {
    if (name != kFamilyNames[i]) continue;
    *family = static_cast<Family>(i);
    return true;
  }
  return false;
}

int64_t TransformerConfig::RotaryDim() const {
  const int64_t dims = static_cast<int64_t>(static_cast<double>(HeadDim()) * rotary_fraction);
  return dims / 2 * 2;
}

void TransformerConfig::Check() const {
  CheckSizes(*this);
  CheckNumbers(*this);
  CheckHeads(*this);
  CheckExperts(*this);
  CheckParts(*this);
}

absl::Span<const TransformerField> TransformerFields() {
  static constexpr TransformerField kFields[] = {
      {"vocab", &Config::vocab},
      {"context", &Config::context},
      {"width", &Config::width},
      {"layers", &Config::layers},
      {"heads", &Config::heads},
      {"kv_heads", &Config::kv_heads},
      {"head_dim", &Config::head_dim},
      {"inner", &Config::inner},
      {"dropout", &Config::dropout},
      {"norm", MakeEnum<&Config::norm, kNormNames>()},
      {"eps", &Config::eps},
      {"norm_offset", &Config::norm_offset},
      {"placement", MakeEnum<&Config::placement, kPlacementNames>()},
      {"final_norm", &Config::final_norm},
      {"embedding_norm", &Config::embedding_norm},
      {"positions", MakeEnum<&Config::positions, kPositionNames>()},
      {"position_offset", &Config::position_offset},
      {"rotary_fraction", &Config::rotary_fraction},
      {"rope_theta", &Config::rope_theta},
      {"rope_interleaved", &Config::rope_interleaved},
      {"rope_scaling", MakeEnum<&Config::rope_scaling, kScalingNames>()},
      {"rope_factor", &Config::rope_factor},
      {"rope_low_frequency", &Config::rope_low_frequency},
      {"rope_high_frequency", &Config::rope_high_frequency},
      {"rope_original_context", &Config::rope_original_context},
      {"qkv_bias", &Config::qkv_bias},
      {"out_bias", &Config::out_bias},
      {"mlp_bias", &Config::mlp_bias},
      {"head_bias", &Config::head_bias},
      {"qk_norm", &Config::qk_norm},
      {"activation", MakeEnum<&Config::activation, kActivationNames>()},
      {"gated", &Config::gated},
      {"tied", &Config::tied},
      {"scaled_embedding", &Config::scaled_embedding},
      {"embedding_width", &Config::embedding_width},
      {"causal", &Config::causal},
      {"attention", MakeEnum<&Config::attention, kAttentionNames>()},
      {"attention_scale", &Config::attention_scale},
      {"attention_softcap", &Config::attention_softcap},
      {"final_softcap", &Config::final_softcap},
      {"window", &Config::window},
      {"window_period", &Config::window_period},
      {"experts", &Config::experts},
      {"experts_per_token", &Config::experts_per_token},
      {"expert_inner", &Config::expert_inner},
      {"renormalise_experts", &Config::renormalise_experts},
      {"head", MakeEnum<&Config::head, kHeadNames>()},
      {"token_types", &Config::token_types},
      {"image", &Config::image},
      {"patch", &Config::patch},
      {"channels", &Config::channels},
      {"classes", &Config::classes},
      {"class_token", &Config::class_token},
  };
  return kFields;
}

bool SetField(TransformerConfig& config, absl::string_view name, absl::string_view value) {
  struct Set {
    Config& config;
    absl::string_view text;
    bool operator()(int64_t Config::*member) const {
      return absl::SimpleAtoi(text, &(config.*member));
    }
    bool operator()(double Config::*member) const {
      return absl::SimpleAtod(text, &(config.*member));
    }
    bool operator()(bool Config::*member) const {
      if (text != "true" && text != "false") return false;
      config.*member = text == "true";
      return true;
    }
    bool operator()(const EnumField& field) const {
      for (uint8_t i = 0; field.names[i] != nullptr; ++i) {
        if (text == field.names[i]) return field.set(config, i), true;
      }
      return false;
    }
  };
  for (const TransformerField& field : TransformerFields()) {
    if (field.name == name) return std::visit(Set{config, value}, field.member);
  }
  return false;
}

}  // namespace tally
