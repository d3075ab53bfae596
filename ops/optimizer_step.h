// Fused optimizer steps: update ops that write a parameter and its state in one pass.
//
// The arithmetic is that of PyTorch's single-tensor implementations; in exact arithmetic
//   sgd:    g += wd·p;  b = first ? g : mu·b + (1-damp)·g;  d = nesterov ? g + mu·b : b;  p -= lr·d
//   adamw:  p *= 1 - lr·wd;  m += (1-b1)(g-m);  v = b2·v + (1-b2)g²;
//           p -= (lr / (1-b1^t)) · m / (sqrt(v) / sqrt(1-b2^t) + eps)        (t counts from 1)
// State is f64 for f64 parameters and f32 for every narrower one. Gradients have the parameter's
// dtype.
#ifndef TALLY_OPS_OPTIMIZER_STEP_H_
#define TALLY_OPS_OPTIMIZER_STEP_H_

#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"

namespace tally {

struct AdamWAttrs {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  int64_t step = 1;
  static absl::Span<const AttrField> Fields();
};

struct SgdAttrs {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first = true;  // the momentum buffer takes the gradient as it is
  static absl::Span<const AttrField> Fields();
};

// Writes param, m and v. Cost per element: 13 other, 1 transcendental (without decay 12).
void AdamWStep(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
               const AdamWAttrs& attrs);
// Writes param, and `buffer` when momentum is not 0 (undefined otherwise).
void SgdStep(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdAttrs& attrs);

// Dtype of optimizer state for a parameter of this dtype.
DType StateDType(DType param);

OpFamily OptimizerOps();

}  // namespace tally

#endif  // TALLY_OPS_OPTIMIZER_STEP_H_
