// Root-mean-square normalisation over the last axis (Zhang and Sennrich, 2019). f64 f32 bf16 f16;
// narrow floats compute in f32 and round once, after the weight.
//
//   r = (sum(x^2) / n + eps)^(-1/2),  h = x r
//   rms_norm   y = h (offset + w)     rms_standardize   y = h
//
// Both ops have the outputs y and r [...], f32 (f64 for f64). The offset is 0, or 1 where weights
// are kept as differences from one (Gemma). The gradients are ops of their own, so that a frozen
// weight or input costs nothing; both read x and r, and dx the weight:
//   rms_norm_grad(dy, x, r[, w]) -> dx
//   rms_norm_param_grad(dy, x, r) -> dw
// Sums over rows run in fixed blocks, so the bits do not depend on the number of threads.
//
// Cost, R rows of n (what a plain loop does):
//   rms_standardize       other R (3n+1): squares n, sum n-1, division 1, eps 1, products n;
//                         transcendental R
//   rms_norm              other R (4n+1), with an offset R (5n+1); transcendental R
//   rms_norm_grad         other R 6n, with w R 7n, with an offset R 8n: h n, g = dy (offset + w),
//                         sum of g h n + n-1, division 1, dx = r (g - h mean(g h)) 3n
//   rms_norm_param_grad   other 3Rn - n: h Rn, products Rn, sums over rows (R-1)n
//
// Errors, thrown as Error (kInvalidArgument): x without axes or not a computing float; w that is
// not of x's dtype with the one axis n; eps negative or not finite; an offset that is not finite,
// or without a weight.
#ifndef TALLY_OPS_RMS_NORM_H_
#define TALLY_OPS_RMS_NORM_H_

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct RmsNormOptions {
  double eps = 1e-6;
  double offset = 0;
};

struct RmsNormAttrs {
  double eps = 1e-6;
  double offset = 0;  // optional
  static absl::Span<const AttrField> Fields();
};
struct RmsStandardizeAttrs {
  double eps = 1e-6;
  static absl::Span<const AttrField> Fields();
};
struct RmsNormGradAttrs {
  double offset = 0;  // optional
  static absl::Span<const AttrField> Fields();
};

// x [..., n], weight [n] or undefined: y = x r.
Tensor RmsNorm(const Tensor& x, const Tensor& weight = {}, const RmsNormOptions& options = {});

extern const OpDef kRmsNorm, kRmsStandardize, kRmsNormGrad, kRmsNormParamGrad;
OpFamily RmsNormOps();

}  // namespace tally

#endif  // TALLY_OPS_RMS_NORM_H_
