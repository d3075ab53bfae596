// Clipping by global norm.
#ifndef TALLY_OPTIM_CLIP_H_
#define TALLY_OPTIM_CLIP_H_

#include "tally/tensor/tensor.h"

namespace tally {

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all their
// elements together, and returns the norm (a one-element tensor, f32, or f64 when one of them is
// f64). Replaces the handles in `grads`; nothing is read back to the host, so it works on meta.
// Undefined gradients are skipped. Recorded as Phase::kOptimizer. Throws Error when max_norm is not
// above 0.
Tensor ClipByGlobalNorm(Tensors& grads, double max_norm);

}  // namespace tally

#endif  // TALLY_OPTIM_CLIP_H_
