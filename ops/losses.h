// Losses composed of elementwise ops and a reduction. x and target are alike in dtype (f64 f32 bf16
// f16) and shape: a target that would broadcast is refused.
//
// Per element, N of them:
//   mse_loss   (x - t)^2
//   kl_div     t (log t - x), 0 where t is 0: input log-probabilities x, target probabilities t
//              e^t (t - x) with log_target: both log-probabilities
// and with a reduction their sum, mean (over all N), or sum over the first dim (batchmean).
//
// They are compositions because a fused op would only save passes over tensors that are as small as
// a model's output; narrow floats round after each op of them. What is kept for backward is no more
// than it must be:
//   mse_loss   sub, square and the reduction: other 2N + the reduction's N-1 (+1 for the mean);
//              keeps x - target. Backward: 2N for square and N for the sign, where t wants it.
//   kl_div     equal, masked_fill, log, sub, mul: other 3N + transcendental N + the reduction's;
//              keeps the target alone when only x wants a gradient. Backward to x: 2N.
//              log_target: exp, sub, mul: other 2N, transcendental N; keeps e^t.
//
// Errors, thrown as Error (kInvalidArgument): x and target that differ; no computing float;
// batchmean of scalars.
#ifndef TALLY_OPS_LOSSES_H_
#define TALLY_OPS_LOSSES_H_

#include <cstdint>

#include "tally/tensor/tensor.h"

namespace tally {

enum class LossReduction : uint8_t { kNone, kMean, kSum, kBatchMean };

Tensor MseLoss(const Tensor& x, const Tensor& target,
               LossReduction reduction = LossReduction::kMean);

struct KlDivOptions {
  LossReduction reduction = LossReduction::kMean;
  bool log_target = false;
};

// As PyTorch's kl_div. The divergence of distributions along the last axis of [batch, n] is
// kBatchMean, not kMean.
Tensor KlDivLoss(const Tensor& log_p, const Tensor& target, const KlDivOptions& options = {});

}  // namespace tally

#endif  // TALLY_OPS_LOSSES_H_
