// Self-attention of a transformer block: projections, norms and rotation of queries and keys, the
// attention itself, and the projection back.
#ifndef TALLY_NN_ATTENTION_LAYER_H_
#define TALLY_NN_ATTENTION_LAYER_H_

#include <string>

#include "tally/nn/checkpoint_layout.h"
#include "tally/nn/layers.h"
#include "tally/ops/attrs.h"

namespace tally {

// What a forward pass takes beside the data.
struct Pass {
  Random* random = nullptr;  // of dropout; null: dropout is off
  // Lengths of documents packed one after the other in every sequence: each is a sequence of its
  // own, positions begin again with it and attention does not look across. Empty: one.
  Lengths documents = {};
  Tensor token_types = {};  // BERT's segments [B,T] (i64 or i32); undefined: all 0
};

class AttentionLayer {
 public:
  AttentionLayer() = default;
  // `name` is the path of the module, `layer` its number: some layers have a window, others not.
  AttentionLayer(Parameters& parameters, const std::string& name, const TransformerConfig& config,
                 int64_t layer);
  // x[B,T,d] -> [B,T,d].
  Tensor operator()(const Tensor& x, const Pass& pass) const;

 private:
  struct Heads {
    Tensor q, k, v;  // [B,T,heads,size] and twice [B,T,kv_heads,size]
  };
  Heads Project(const Tensor& x) const;
  Tensor Rotate(const Tensor& x, const Pass& pass) const;
  Tensor Attend(const Heads& heads, const Pass& pass) const;
  // GPT-2's published form, from the fused projection straight to heads.
  bool HasPublishedForm(const Pass& pass) const;
  Tensor PublishedForm(const Tensor& qkv, Random* random) const;

  LinearLayer q_, k_, v_, qkv_, out_;
  NormLayer q_norm_, k_norm_;
  QkvPacking packing_ = QkvPacking::kSeparate;
  TransformerConfig config_;
  int64_t window_ = 0;
  bool checkpointed_ = false;  // the attention core
};

}  // namespace tally

#endif  // TALLY_NN_ATTENTION_LAYER_H_
