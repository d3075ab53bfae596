// What the published checkpoints of a family call their parameters and how they pack them.
#ifndef TALLY_NN_CHECKPOINT_LAYOUT_H_
#define TALLY_NN_CHECKPOINT_LAYOUT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tally/nn/transformer_config.h"

namespace tally {

// How queries, keys and values are projected, H query heads and K key heads of size s:
//   separate   three matrices
//   fused      one of (H + 2K)·s outputs: all queries, all keys, all values
//   per_head   one of 3·H·s outputs: query, key and value of head 0, then of head 1, ... (H = K)
enum class QkvPacking : uint8_t { kSeparate, kFused, kPerHead };

// Paths of modules without the ".weight" or ".bias" behind them. Null: no checkpoint of the family
// has the part. Those of a block follow BLOCKS.N, those of its attention and feed-forward module
// also that module's name.
struct CheckpointLayout {
  // Outside the blocks.
  const char* embed = nullptr;
  const char* positions = nullptr;
  const char* token_types = nullptr;
  const char* embedding_norm = nullptr;
  const char* project_in = nullptr;
  const char* project_out = nullptr;
  const char* blocks = nullptr;
  const char* final_norm = nullptr;
  const char* head = nullptr;
  const char* pooler = nullptr;
  const char* class_token = nullptr;  // the name of the parameter itself, as of positions' in ViT
  // Attention.
  const char* attention = nullptr;
  const char* q = nullptr;  // separate
  const char* k = nullptr;
  const char* v = nullptr;
  const char* qkv = nullptr;  // packed
  const char* out = nullptr;
  const char* q_norm = nullptr;
  const char* k_norm = nullptr;
  QkvPacking packing = QkvPacking::kSeparate;
  // Feed-forward. `mlp` may be "": the layers lie in the block itself.
  const char* mlp = nullptr;
  const char* gate = nullptr;
  const char* up = nullptr;
  const char* down = nullptr;
  const char* gate_up = nullptr;  // one matrix of 2·inner outputs: the gate, then up
  // Experts: MLP.router and MLP.experts.E.{gate,up,down}.
  const char* router = nullptr;
  const char* experts = nullptr;
  // In the order of NormPlacement's n1 to n4.
  const char* norms[4] = {nullptr, nullptr, nullptr, nullptr};

  // The order in which a block keeps its parts: 'a' attention, 'm' feed-forward, '1' to '4' norms.
  const char* order = "am12";
  // The order of separate projections.
  const char* qkv_order = "qkv";
  // Matrices are [in,out].
  bool in_out = false;
  // Projections onto the residual stream start smaller, by sqrt(2·layers) (the GPT-2 paper).
  bool scaled_residual_init = false;
};

// By its family and, for BERT, its head: the files of BertForMaskedLM keep the encoder under
// "bert.", those of BertModel at the top.
const CheckpointLayout& LayoutOf(const TransformerConfig& config);

// "a.b"; `a` alone when `b` is empty and `b` alone when `a` is.
std::string JoinPath(absl::string_view a, absl::string_view b);

}  // namespace tally

#endif  // TALLY_NN_CHECKPOINT_LAYOUT_H_
