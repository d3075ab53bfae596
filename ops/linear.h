// The affine layer as one op: its bias is added in the epilogue of the product.
#ifndef TALLY_OPS_LINEAR_H_
#define TALLY_OPS_LINEAR_H_

#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// y[..., out] = x[..., in] · op(w) + bias[out]. `w` is [out, in] with transpose_weight (as PyTorch
// keeps it), else [in, out]. An undefined bias: none.
// Operands: f64 f32 bf16 f16, all the same. Errors (Error, kInvalidArgument): dtypes differ or do
// not compute, w is no matrix, sizes do not fit.
Tensor Linear(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              bool transpose_weight = true);

struct LinearAttrs {
  bool transpose_weight = true;
  static absl::Span<const AttrField> Fields();
};
extern const OpDef kLinear;  // inputs x, w and, when there is one, bias

OpFamily LinearOps();

}  // namespace tally

#endif  // TALLY_OPS_LINEAR_H_
