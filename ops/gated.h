// Gated activations of MLPs (Shazeer, 2020), y = act(gate) up elementwise, in one pass that keeps
// only gate and up. f64 f32 bf16 f16; narrow floats compute in f32 and round once.
//
//   SwiGlu     act(x) = x sigmoid(x)
//   GeGlu      act(x) = x Phi(x), by erf
//   GeGluTanh  act(x) = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
//
// gate and up have one spec and may be views, as the halves of one projection are: no copy is made
// of them. The gradient is one op with two outputs, (dy, gate, up) -> dgate, dup: both come from
// one evaluation of the activation.
//
// Cost per element, other + transcendental, by the texts of gated_rows.inc:
//   swiglu      4 + 1    swiglu_grad      10 + 1
//   geglu       5 + 1    geglu_grad       12 + 2
//   geglu_tanh  7 + 1    geglu_tanh_grad  16 + 1
//
// Errors, thrown as Error (kInvalidArgument): dtypes that differ or are no computing float, shapes
// that differ.
#ifndef TALLY_OPS_GATED_H_
#define TALLY_OPS_GATED_H_

#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

Tensor SwiGlu(const Tensor& gate, const Tensor& up);
Tensor GeGlu(const Tensor& gate, const Tensor& up);
Tensor GeGluTanh(const Tensor& gate, const Tensor& up);

OpFamily GatedOps();  // the ops above in this order, each followed by its `_grad`

}  // namespace tally

#endif  // TALLY_OPS_GATED_H_
