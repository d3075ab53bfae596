// How `matmul` and `linear` run: strides of tensors into the terms of a GEMM.
#ifndef TALLY_OPS_PRODUCT_H_
#define TALLY_OPS_PRODUCT_H_

#include "absl/status/status.h"
#include "tally/tensor/tensor.h"

namespace tally {

// y = op(a) · op(b) (+ bias over the last axis), with the shapes of MatMul. `a` and `b` satisfy
// ProductTakes; `y` and `bias` are contiguous.
struct ProductArgs {
  const Tensor& a;
  bool transpose_a = false;
  const Tensor& b;
  bool transpose_b = false;
  const Tensor* bias = nullptr;
  const Tensor& y;
};

// Runs on y's device. Leading axes of `a` become rows where their strides allow and `b` repeats;
// the others become at most two batch extents, and what is left is looped over.
absl::Status RunProduct(const ProductArgs& args);

// True iff one of the last two axes of `x` has unit stride and the other steps over it whole, so
// that RunProduct reads `x` in place. Leading axes may have any strides.
bool ProductTakes(const Tensor& x);

// Every axis but the last as rows: (..., n) to (rows, n). Recorded; a view where strides allow.
Tensor FoldRows(const Tensor& x);

// f64 f32 bf16 f16.
inline bool ComputesProducts(DType dtype) { return IsFloat(dtype) && ItemSize(dtype) >= 2; }

}  // namespace tally

#endif  // TALLY_OPS_PRODUCT_H_
