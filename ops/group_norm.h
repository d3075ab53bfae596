// Group normalisation (Wu and He, 2018): each image's channels in groups, over the group and every
// axis after the channels. f64 f32 bf16 f16; narrow floats compute in f32.
//
//   mean, rstd of each of the N x groups sets of n = (C / groups) S elements, as in layer_norm
//   y = (x - mean) rstd w_c + b_c                           x [N, C, ...], S elements after C
//
// groups = C is instance normalisation, groups = 1 layer normalisation over channels and space. The
// statistics [N, groups] are outputs: f32, or f64 for f64. The gradients are ops of their own:
//   group_norm_grad(dy, x, mean, rstd, w) -> dx      group_norm_param_grad(dy, x, mean, rstd) ->
//   dw, db
// Sums run in fixed order, so the bits do not depend on the number of threads.
//
// Cost, E elements of x, R = N groups sets (what a plain loop does):
//   group_norm             other 7E + R, transcendental R      group_norm_grad  other 10E
//   group_norm_param_grad  other 5E - 2C
// in the terms of batch_norm, with R for the number of statistics.
//
// Errors, thrown as Error (kInvalidArgument): x without a channel axis or not a computing float;
// parameters that are not of x's dtype with shape [C]; groups that do not divide C; eps negative or
// not finite.
#ifndef TALLY_OPS_GROUP_NORM_H_
#define TALLY_OPS_GROUP_NORM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// x [N, C, ...], weight [C], bias [C]; either undefined: ones or zeros, made by a recorded `fill`.
Tensor GroupNorm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                 const Tensor& bias = {}, double eps = 1e-5);

struct GroupNormAttrs {
  int64_t groups = 1;
  double eps = 1e-5;
  static absl::Span<const AttrField> Fields();
};
extern const OpDef kGroupNorm, kGroupNormGrad, kGroupNormParamGrad;
OpFamily GroupNormOps();

}  // namespace tally

#endif  // TALLY_OPS_GROUP_NORM_H_
