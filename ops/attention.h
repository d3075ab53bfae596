// Scaled dot-product attention: one definition, composed of ops or fused into one.
//
//   s = scale q · kᵀ,  with softcap c: s = c tanh(s / c),  p = softmax(s) under the mask,  y = p ·
//   v
//
// The mask (causal, window, documents) is that of ops/attention_mask.h.
//
// Grouped queries: where q has H heads and k and v have fewer, Hkv, H is a multiple of it and each
// head of k and v serves H / Hkv consecutive heads of q. It is never repeated in memory.
//
//                      layout                      keeps for backward        dropout
//   Attention          heads first                 q k v, s×s probabilities  yes
//   ComposedAttention  heads beside the head size  the same                  yes
//   FusedAttention     heads beside the head size  q k v out, one row        no
//
// The last two take what linear layers give, without a transpose or a copy, and are each other's
// equal in values, gradients and nominal FLOPs; a model can switch by a flag. (Where a window hides
// something or documents are packed, the composition's products still run and count the full
// square, the fused op counts nominal pairs: NominalPairs.)
//
// Errors, thrown as Error (kInvalidArgument): shapes, heads or a mask that do not fit, heads of
// size 0 without a scale, a negative softcap, dropout without `random` or with FusedAttention.
#ifndef TALLY_OPS_ATTENTION_H_
#define TALLY_OPS_ATTENTION_H_

#include "tally/ops/attrs.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct AttentionOptions {
  bool causal = false;  // query i of Q sees key j of K iff j <= i + (K - Q)
  double scale = 0;     // of the scores; 0 means 1 / sqrt(d)
  double dropout = 0;   // of the probabilities; above 0 it needs `random`
  Random* random = nullptr;
  int64_t window = 0;      // keys that a query sees at most, its own included; 0: all
  Lengths documents = {};  // packed one after the other; a query sees its own document only
  double softcap = 0;      // 0: none
};

// q [..., Q, d], k [..., K, d], v [..., K, e] -> [..., Q, e]. The axis before Q, if there is one,
// is heads, grouped where they differ; leading axes broadcast. Two matmuls and a softmax, which
// holds scale and mask (with softcap also mul and tanh before it).
Tensor Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});

// q [B, Q, H, d], k [B, K, Hkv, d], v [B, K, Hkv, e] -> [B, Q, H, e]: Attention between transposed
// views. The result is such a view.
Tensor ComposedAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const AttentionOptions& options = {});

// The same as one op, `sdpa` (ops/sdpa.h): no scores in memory.
Tensor FusedAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                      const AttentionOptions& options = {});

}  // namespace tally

#endif  // TALLY_OPS_ATTENTION_H_
