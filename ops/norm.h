// Layer normalisation over the last axis. f64 f32 bf16 f16; narrow floats compute in f32.
//
//   mean = sum(x) / n,  rstd = (sum((x - mean)^2) / n + eps)^(-1/2),  h = (x - mean) rstd
//   layer_norm   y = h w + b          standardize   y = h
//
// Both ops have the outputs y, mean [...] and rstd [...]; the statistics are f32, or f64 for f64.
// The gradients are ops of their own, so that a frozen weight or input costs nothing:
//   layer_norm_grad(dy, x, mean, rstd[, w]) -> dx
//   layer_norm_param_grad(dy, x, mean, rstd) -> dw, db
// Sums over rows run in fixed blocks, so the bits do not depend on the number of threads.
//
// Cost, R rows of n (what a plain loop does):
//   standardize            other R (5n+1): mean n-1 + 1, differences n, squares n, sum n-1,
//   division
//                          1, eps 1, products n; transcendental R
//   layer_norm             other R (7n+1); transcendental R
//   layer_norm_grad        other R 9n, with w R 10n: h 2n, dy w n, two sums 2(n-1) and n products,
//                          divisions 2, dx = rstd (g - mean(g) - h mean(g h)) 4n
//   layer_norm_param_grad  other 3Rn + 2(R-1)n: h 2Rn, products Rn, two sums over rows
//
// Errors, thrown as Error (kInvalidArgument): x without axes or not a computing float; w or b that
// is not of x's dtype with the one axis n; eps negative or not finite.
#ifndef TALLY_OPS_NORM_H_
#define TALLY_OPS_NORM_H_

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct NormAttrs {
  double eps = 1e-5;
  static absl::Span<const AttrField> Fields();
};

// x [..., n], weight [n], bias [n]. Either of the last two may be undefined: without both the op is
// `standardize`; with one alone it is composed with mul or add.
Tensor LayerNorm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                 double eps = 1e-5);

extern const OpDef kStandardize, kLayerNorm, kLayerNormGrad, kLayerNormParamGrad;
OpFamily NormOps();

}  // namespace tally

#endif  // TALLY_OPS_NORM_H_
