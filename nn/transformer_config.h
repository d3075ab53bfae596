// TransformerConfig: the one description from which every transformer family is built.
//
// A config says what is computed; its `family` says what a published checkpoint of it calls the
// parameters and how it packs them (see checkpoint_layout.h). The defaults of the struct are GPT-2
// small; the functions below give those of the other families, as their published configuration
// classes have them. Models by name are in model.h.
#ifndef TALLY_NN_TRANSFORMER_CONFIG_H_
#define TALLY_NN_TRANSFORMER_CONFIG_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/nn/activation.h"
#include "tally/nn/layer_checkpoints.h"
#include "tally/ops/rope.h"

namespace tally {

enum class Family : uint8_t {
  kGpt2,
  kGptNeoX,
  kLlama,
  kMistral,
  kMixtral,
  kQwen2,
  kQwen3,
  kQwen3Moe,
  kGemma,
  kGemma2,
  kPhi,
  kPhi3,
  kBert,
  kOpt,
  kVit
};
inline constexpr const char* kFamilyNames[] = {
    "gpt2",  "gpt_neox", "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe",
    "gemma", "gemma2",   "phi",   "phi3",    "bert",    "opt",   "vit",   nullptr};
const char* Name(Family family);
bool FamilyFromName(absl::string_view name, Family* family);

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

// Where the norms of a block are, with A its attention and F its feed-forward layer:
//   pre              x + A(n1(x)), then x + F(n2(x))
//   post             n1(x + A(x)), then n2(x + F(x))
//   parallel         x + A(n1(x)) + F(n2(x))
//   parallel_shared  x + A(n1(x)) + F(n1(x))
//   sandwich         x + n2(A(n1(x))), then x + n4(F(n3(x)))
enum class NormPlacement : uint8_t { kPre, kPost, kParallel, kParallelShared, kSandwich };

// learned: a table of rows added to the embedding. rotary: queries and keys are turned.
enum class PositionKind : uint8_t { kNone, kLearned, kRotary };

// composed: scores, softmax and weights are values of the graph. fused: one op, which keeps one
// number a query and no matrix of scores.
enum class AttentionKind : uint8_t { kComposed, kFused };
inline constexpr const char* kAttentionNames[] = {"composed", "fused", nullptr};

// What is done with the output of the last block, and the loss of it:
//   language_model  logits [B,T,V]; mean cross entropy of all positions
//   masked_language_model  the same behind BERT's transform (dense, activation, norm) and a bias
//   pooled          tanh of a dense layer of the first position [B,d]; mean squared error against a
//                   target [B,d], as in regression onto given sentence embeddings
//   classes         a dense layer of the first position [B,classes]; mean cross entropy
enum class Head : uint8_t { kLanguageModel, kMaskedLanguageModel, kPooled, kClasses };

struct TransformerConfig {
  Family family = Family::kGpt2;
  // Sizes. 0 as kv_heads: as many as heads; as head_dim: width / heads; as inner: 4·width.
  int64_t vocab = 50257, context = 1024, width = 768, layers = 12, heads = 12;
  int64_t kv_heads = 0, head_dim = 0, inner = 0;
  // After the embedding, on attention weights and on both residual branches.
  double dropout = 0;

  NormKind norm = NormKind::kLayerNorm;
  double eps = 1e-5;
  double norm_offset = 0;  // of an RMS norm's weight: (offset + w), Gemma's 1
  NormPlacement placement = NormPlacement::kPre;
  bool final_norm = true;
  bool embedding_norm = false;

  PositionKind positions = PositionKind::kLearned;
  int64_t position_offset = 0;  // rows of the table before position 0 (OPT's 2)
  double rotary_fraction = 1;   // of the dims of a head, from the first
  double rope_theta = 10000;
  bool rope_interleaved = false;                  // pairs (2i, 2i+1) in place of (i, i + dims/2)
  RopeScaling rope_scaling = RopeScaling::kNone;  // see ops/rope.h, as the numbers below
  double rope_factor = 1, rope_low_frequency = 1, rope_high_frequency = 4;
  int64_t rope_original_context = 8192;

  bool qkv_bias = true, out_bias = true, mlp_bias = true, head_bias = false;
  bool qk_norm = false;  // an RMS norm over each head's query and key
  Activation activation = Activation::kGeluTanh;
  bool gated = false;
  bool tied = true;               // the head's matrix is the token embedding
  bool scaled_embedding = false;  // token embeddings times sqrt(width)
  int64_t embedding_width = 0;    // of the token table when projected to the width; 0: the width

  bool causal = true;
  AttentionKind attention = AttentionKind::kComposed;
  double attention_scale = 0;                       // of the scores; 0: 1/sqrt(head_dim)
  double attention_softcap = 0, final_softcap = 0;  // c tanh(x/c); 0: none
  int64_t window = 0;         // keys a query sees, itself included; 0: all before it
  int64_t window_period = 1;  // layers 0, p, 2p, ... have the window

  // A mixture of experts in place of each feed-forward layer; 0 experts: none.
  int64_t experts = 0, experts_per_token = 0;
  int64_t expert_inner = 0;          // 0: inner
  bool renormalise_experts = false;  // the chosen experts' weights add up to 1

  Head head = Head::kLanguageModel;
  int64_t token_types = 0;  // rows of BERT's table of segments; 0: none
  // Images, for the classes head: `image` and `patch` are edges in pixels.
  int64_t image = 0, patch = 0, channels = 3, classes = 0;
  bool class_token = true;

  LayerCheckpoints checkpoints;  // of the blocks; how a step runs, no field of the model

  int64_t KvHeads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t HeadDim() const { return head_dim > 0 ? head_dim : width / heads; }
  int64_t Inner() const { return inner > 0 ? inner : 4 * width; }
  int64_t ExpertInner() const { return expert_inner > 0 ? expert_inner : Inner(); }
  int64_t RotaryDim() const;  // dims of a head that are turned: even, rounded down
  int64_t Patches() const { return patch > 0 ? (image / patch) * (image / patch) : 0; }
  bool takes_images() const { return image > 0; }
  // The longest sequence of tokens, 0 for images.
  int64_t Context() const { return takes_images() ? 0 : context; }
  // The window of layer `i`, 0 when it sees everything.
  int64_t Window(int64_t i) const { return window > 0 && i % window_period == 0 ? window : 0; }

  // Throws Error (kInvalidArgument) naming the family and the field: a size out of range, sizes
  // that do not fit each other, parts that no checkpoint of the family has.
  void Check() const;

  friend bool operator==(const TransformerConfig&, const TransformerConfig&) = default;
};

TransformerConfig Gpt2Defaults();
TransformerConfig GptNeoXDefaults();
TransformerConfig LlamaDefaults();
TransformerConfig MistralDefaults();
TransformerConfig MixtralDefaults();
TransformerConfig Qwen2Defaults();
TransformerConfig Qwen3Defaults();
TransformerConfig Qwen3MoeDefaults();
TransformerConfig GemmaDefaults();
TransformerConfig Gemma2Defaults();
TransformerConfig PhiDefaults();
TransformerConfig Phi3Defaults();
TransformerConfig BertDefaults();
TransformerConfig OptDefaults();
TransformerConfig VitDefaults();
TransformerConfig FamilyDefaults(Family family);

// A field by its name: what JSON and NAME:field=value know of it. An enum has the names of its
// values, in order and ended by null.
struct EnumField {
  uint8_t (*get)(const TransformerConfig&);
  void (*set)(TransformerConfig&, uint8_t);
  const char* const* names;
};
struct TransformerField {
  const char* name;
  std::variant<int64_t TransformerConfig::*, double TransformerConfig::*, bool TransformerConfig::*,
               EnumField>
      member;
};
// All but `family` and `checkpoints`, in the order of the struct.
absl::Span<const TransformerField> TransformerFields();

// Sets the field from text: an integer, a number, true or false, or a name. False when there is no
// such field or the text is no value of it.
bool SetField(TransformerConfig& config, absl::string_view name, absl::string_view value);

}  // namespace tally

#endif  // TALLY_NN_TRANSFORMER_CONFIG_H_
