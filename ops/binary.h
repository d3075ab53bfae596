// Elementwise ops of two tensors with NumPy broadcasting, or of a tensor and a number.
//
// Both tensors have one dtype: there is no implicit promotion, and the message names the Cast that
// fits. Numbers are attributes, rounded to the compute type (f32 for bf16 and f16); for integer
// tensors they must be integers in range. Integer arithmetic wraps. Costs per output element are in
// binary_rows.inc; the op of a tensor and a number is named `<name>_scalar`.
#ifndef TALLY_OPS_BINARY_H_
#define TALLY_OPS_BINARY_H_

#include "tally/ops/op_table.h"

namespace tally {

// f64 f32 bf16 f16 i64 i32 u8.
Tensor Add(const Tensor& a, const Tensor& b);
Tensor Add(const Tensor& a, double b);
Tensor Sub(const Tensor& a, const Tensor& b);
Tensor Sub(const Tensor& a, double b);
Tensor Sub(double a, const Tensor& b);  // op rsub_scalar
Tensor Mul(const Tensor& a, const Tensor& b);
Tensor Mul(const Tensor& a, double b);
// f64 f32 bf16 f16.
Tensor Div(const Tensor& a, const Tensor& b);
Tensor Div(const Tensor& a, double b);
Tensor Div(double a, const Tensor& b);  // op rdiv_scalar
Tensor Pow(const Tensor& a, const Tensor& b);
Tensor Pow(const Tensor& a, double b);
// A NaN on either side is the result. At ties each side gets half of the gradient.
Tensor Maximum(const Tensor& a, const Tensor& b);
Tensor Maximum(const Tensor& a, double b);
Tensor Minimum(const Tensor& a, const Tensor& b);
Tensor Minimum(const Tensor& a, double b);

// bool results, without gradient; every dtype but fp8.
Tensor Equal(const Tensor& a, const Tensor& b);
Tensor Equal(const Tensor& a, double b);
Tensor NotEqual(const Tensor& a, const Tensor& b);
Tensor NotEqual(const Tensor& a, double b);
Tensor Less(const Tensor& a, const Tensor& b);
Tensor Less(const Tensor& a, double b);
Tensor LessEqual(const Tensor& a, const Tensor& b);
Tensor LessEqual(const Tensor& a, double b);
Tensor Greater(const Tensor& a, const Tensor& b);
Tensor Greater(const Tensor& a, double b);
Tensor GreaterEqual(const Tensor& a, const Tensor& b);
Tensor GreaterEqual(const Tensor& a, double b);

struct ScalarAttrs {
  double value = 0;
  static absl::Span<const AttrField> Fields();
};

OpFamily BinaryOps();

}  // namespace tally

#endif  // TALLY_OPS_BINARY_H_
