// Fused optimizer steps: update ops that write a parameter and its state in one pass.
//
// The arithmetic is that of PyTorch's single-tensor implementations; in exact arithmetic
//   sgd:      g += wd·p;  b = first ? g : mu·b + (1-damp)·g;  d = nesterov ? g + mu·b : b;
//             p -= lr·d
//   adamw:    p *= 1 - lr·wd;  m += (1-b1)(g-m);  v = b2·v + (1-b2)g²;
//             p -= (lr / (1-b1^t)) · m / (sqrt(v) / sqrt(1-b2^t) + eps)      (t counts from 1)
//   adam:     g += wd·p;  then as adamw without its first term
//   rmsprop:  g += wd·p;  v = a·v + (1-a)g²;  centered: c += (1-a)(g-c), w = v - c², else w = v;
//             d = g / (sqrt(w) + eps);  momentum: b = mu·b + d, p -= lr·b, else p -= lr·d
// It runs in f64 for f64 and in f32 for everything narrower: each operand may be f32, bf16 or f16,
// is widened, and what is written is rounded once.
//
// With a master, "adamw_master_" and so on: the master (f32; f64 of an f64 parameter) takes the
// place of p, and the parameter, which is not read, gets it rounded. Operands are then (master,
// grad, param, state...), else (param, grad, state...).
#ifndef TALLY_OPS_OPTIMIZER_STEP_H_
#define TALLY_OPS_OPTIMIZER_STEP_H_

#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"

namespace tally {

// What a step writes besides its state: a parameter, and its master where it has one.
struct StepTarget {
  StepTarget(const Tensor& param, const Tensor& master = {}) : param(param), master(master) {}
  Tensor param, master;
};

struct AdamWAttrs {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  int64_t step = 1;
  static absl::Span<const AttrField> Fields();
};

// Writes m and v. Cost per element: 13 other, 1 transcendental (without decay 12).
void AdamWStep(const StepTarget& target, const Tensor& grad, const Tensor& m, const Tensor& v,
               const AdamWAttrs& attrs);
// The same with the decay in the gradient: 14 other, 1 transcendental (without decay 12).
void AdamStep(const StepTarget& target, const Tensor& grad, const Tensor& m, const Tensor& v,
              const AdamWAttrs& attrs);

struct SgdAttrs {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first = true;  // the momentum buffer takes the gradient as it is
  static absl::Span<const AttrField> Fields();
};

// Writes `buffer` when momentum is not 0 (undefined otherwise). Cost per element: 2 other; decay,
// Nesterov and a buffer that is not the first 2 each, the last 3 with dampening.
void SgdStep(const StepTarget& target, const Tensor& grad, const Tensor& buffer,
             const SgdAttrs& attrs);

struct RmsPropAttrs {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
  static absl::Span<const AttrField> Fields();
};

// Writes `square` (v), `mean` (c) when centered and `buffer` (b) when momentum is not 0 (undefined
// otherwise). Cost per element: 8 other, 1 transcendental; decay 2, centered 5, momentum 2 more.
void RmsPropStep(const StepTarget& target, const Tensor& grad, const Tensor& square,
                 const Tensor& mean, const Tensor& buffer, const RmsPropAttrs& attrs);

// Dtype of optimizer state for a parameter of this dtype where nothing else is asked for: f64 for
// f64, f32 for every narrower one.
DType StateDType(DType param);

OpFamily OptimizerOps();

}  // namespace tally

#endif  // TALLY_OPS_OPTIMIZER_STEP_H_
