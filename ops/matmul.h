// Matrix product, either operand optionally transposed.
#ifndef TALLY_OPS_MATMUL_H_
#define TALLY_OPS_MATMUL_H_

#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// Which operands are multiplied by their transpose (of the last two axes).
struct MatMulTranspose {
  bool a = false, b = false;
};

// y = op(a) · op(b), with op the transpose of the last two axes where asked for.
//   (..., m, k) · (..., k, n) = (..., m, n); leading axes broadcast as in NumPy.
// A vector as `a` is one row, as `b` one column, and leaves no axis in y: (k)·(k) is a scalar.
// Operands: f64 f32 bf16 f16, both the same; f32 sums but for f64. Strided views of matrices and of
// heads are taken as they are when one of the last two axes has unit stride.
// Errors (Error, kInvalidArgument): dtypes differ or do not compute, a scalar operand, inner
// dimensions or leading axes that do not fit, a vector asked to be transposed.
Tensor MatMul(const Tensor& a, const Tensor& b, MatMulTranspose transpose = {});

struct MatMulAttrs {
  bool transpose_a = false;
  bool transpose_b = false;
  static absl::Span<const AttrField> Fields();
};
extern const OpDef kMatMul;

OpFamily MatMulOps();

}  // namespace tally

#endif  // TALLY_OPS_MATMUL_H_
