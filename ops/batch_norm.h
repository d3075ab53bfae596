// Batch normalisation: each channel over the batch and every axis after the channels. f64 f32 bf16
// f16; narrow floats compute in f32.
//
//   mean_c = sum(x) / n,  rstd_c = (sum((x - mean_c)^2) / n + eps)^(-1/2)   over n = N S elements
//   y = (x - mean_c) rstd_c w_c + b_c                       x [N, C, ...], S elements after C
//
// Training normalises by the statistics of the batch (biased variance), which are outputs: f32, or
// f64 for f64. The gradients are ops of their own:
//   batch_norm_grad(dy, x, mean, rstd, w) -> dx      batch_norm_param_grad(dy, x, mean, rstd) ->
//   dw, db
// Sums run in fixed order, so the bits do not depend on the number of threads.
//
// Running statistics are state outside gradients: `running_update_` writes them in place, in the
// forward phase; as an update it is never replayed by recomputation.
//
// Cost, E elements of x (what a plain loop does):
//   batch_norm             other 7E + C: mean n-1 + 1, differences n, squares n, sum n-1, division
//   1,
//                          eps 1, products n, weight and bias 2n for each channel; transcendental C
//   batch_norm_grad        other 10E: dy w E, h 2E, two sums and products 3E - 2C, divisions 2C,
//                          dx = rstd (g - mean(g) - h mean(g h)) 4E
//   batch_norm_param_grad  other 5E - 2C: h 2E, products E, two sums 2(E - C)
//   running_update_        other 10C: three for the mean; the variance out of rstd 3, made unbiased
//   1,
//                          three for its update
//
// Errors, thrown as Error (kInvalidArgument): x without a channel axis or not a computing float;
// parameters that are not of x's dtype with shape [C]; eps negative or not finite.
#ifndef TALLY_OPS_BATCH_NORM_H_
#define TALLY_OPS_BATCH_NORM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct BatchNormed {
  Tensor y;
  Tensor mean, rstd;  // [C]; no gradient
};
// Training: x [N, C, ...], weight [C], bias [C].
BatchNormed BatchNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

// running_mean = (1 - momentum) running_mean + momentum mean
// running_var = (1 - momentum) running_var + momentum var n / (n - 1),  var = rstd^-2 - eps
// in place, for the statistics of `count` = n elements a channel; n is 2 or more. Statistics are
// f64 for running tensors of f64, else f32; `eps` is the one they were made with.
void UpdateRunning(const Tensor& running_mean, const Tensor& running_var, const BatchNormed& batch,
                   int64_t count, double momentum = 0.1, double eps = 1e-5);

// Inference: y = x scale + shift with scale = w (running_var + eps)^(-1/2) and shift = b -
// running_mean scale, in ops on [C] and two on x. Running statistics of another dtype than x's are
// cast.
Tensor BatchNormInference(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          const Tensor& running_mean, const Tensor& running_var, double eps = 1e-5);

struct BatchNormAttrs {
  double eps = 1e-5;
  static absl::Span<const AttrField> Fields();
};
struct RunningUpdateAttrs {
  double momentum = 0.1;
  double eps = 1e-5;
  int64_t count = 0;
  static absl::Span<const AttrField> Fields();
};
extern const OpDef kBatchNorm, kBatchNormGrad, kBatchNormParamGrad, kRunningUpdate;
OpFamily BatchNormOps();

}  // namespace tally

#endif  // TALLY_OPS_BATCH_NORM_H_
