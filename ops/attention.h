// Scaled dot-product attention, composed of matmul, softmax, dropout and matmul.
#ifndef TALLY_OPS_ATTENTION_H_
#define TALLY_OPS_ATTENTION_H_

#include "tally/tensor/tensor.h"

namespace tally {

struct AttentionOptions {
  bool causal = false;  // query i of Q sees key j of K iff j <= i + (K - Q)
  double scale = 0;     // of the scores; 0 means 1 / sqrt(d)
  double dropout = 0;   // of the probabilities; above 0 it needs `random`
  Random* random = nullptr;
};

// q [..., Q, d], k [..., K, d], v [..., K, e] -> [..., Q, e]; leading axes (batch, heads)
// broadcast. Scores are q · k^T; scale and mask are part of the softmax. Counts are nominal: the
// full square. Throws Error (kInvalidArgument) when the shapes do not fit or `random` is missing.
Tensor Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {});

}  // namespace tally

#endif  // TALLY_OPS_ATTENTION_H_
