// Copies of layout and dtype, and constants made by an op.
#ifndef TALLY_OPS_COPY_H_
#define TALLY_OPS_COPY_H_

#include "tally/ops/op_table.h"

namespace tally {

// x in row-major order without gaps, any dtype; x itself where it is so already. Op "contiguous".
Tensor Contiguous(const Tensor& x);

// x in another dtype; x itself where it has that dtype. Every pair is allowed:
//   to a float      rounds once, to nearest even, from every dtype
//   float to integer  truncates toward zero; what does not fit saturates; NaN gives 0
//   integer to integer  keeps the low bits
//   to bool         x != 0 (NaN is true); from bool: 0 or 1
// The gradient casts back; casts from or to integers and bool have none.
struct CastAttrs {
  DType dtype = DType::kF32;
  static absl::Span<const AttrField> Fields();
};
Tensor Cast(const Tensor& x, DType dtype);

// Every element `value`, converted as by Cast from f64. Op "fill" without inputs.
struct FillAttrs {
  double value = 0;
  PackedDims dims;
  DType dtype = DType::kF32;
  static absl::Span<const AttrField> Fields();
};
Tensor Fill(const TensorSpec& spec, double value, Device device = kCpu);

OpFamily CopyOps();

namespace internal {
// Copies the elements of `src` to `dst`, same dtype and shape, both with any strides, on cpu.
void CopyElements(const Tensor& dst, const Tensor& src);
// Sets every element of `dst`, with any strides, on cpu.
void FillElements(const Tensor& dst, double value);
}  // namespace internal

}  // namespace tally

#endif  // TALLY_OPS_COPY_H_
