// Views: the same elements seen through other dims. No FLOPs, no bytes, the same storage.
//
// All are recorded. Axes and indexes may be negative, counted from the end. Wrong axes and dims
// throw Error (kInvalidArgument). A Reshape that no strides can describe copies its input first;
// the copy is a recorded "contiguous".
#ifndef TALLY_OPS_VIEW_H_
#define TALLY_OPS_VIEW_H_

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// As `end` of a slice: to the end of the axis.
inline constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

// Same elements in row-major order; one dim may be -1 and takes what is left.
Tensor Reshape(const Tensor& x, absl::Span<const int64_t> dims);
Tensor Reshape(const Tensor& x, std::initializer_list<int64_t> dims);
Tensor Reshape(const Tensor& x, const Shape& shape);
// Exchanges two axes.
Tensor Transpose(const Tensor& x, int axis0, int axis1);
// y[i_0, i_1, ...] = x with axis k of y being axis axes[k] of x; axes name every axis once.
Tensor Permute(const Tensor& x, const Axes& axes);
// Elements begin, begin+step, ... before end along `axis`, clamped as Python clamps them (begin and
// end may be negative or too large). step > 0.
Tensor Slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step = 1);
// Broadcasts to `shape` as NumPy does: aligned at the last axis, dims of 1 stretch.
Tensor Expand(const Tensor& x, const Shape& shape);
// Removes an axis of size 1.
Tensor Squeeze(const Tensor& x, int axis);
// Inserts an axis of size 1 so that it becomes axis `axis` of the result (-1: the last).
Tensor Unsqueeze(const Tensor& x, int axis);
// The part at `index` along `axis`; the axis goes away.
Tensor Select(const Tensor& x, int axis, int64_t index);

// Zeros with axis `axis` of size `dim` and `dy` placed where Slice(axis, begin, end, step) would
// read it: the gradient of Slice. Op "slice_grad" computes; it is no view.
Tensor SliceGrad(const Tensor& dy, int axis, int64_t begin, int64_t end, int64_t step, int64_t dim);

struct ReshapeAttrs {
  PackedDims shape;  // at most one -1
  static absl::Span<const AttrField> Fields();
};
struct TransposeAttrs {
  int32_t axis0 = 0;
  int32_t axis1 = 0;
  static absl::Span<const AttrField> Fields();
};
struct PermuteAttrs {
  Axes axes;
  static absl::Span<const AttrField> Fields();
};
struct SliceAttrs {
  int32_t axis = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
  static absl::Span<const AttrField> Fields();
};
struct SliceGradAttrs {
  int32_t axis = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
  int64_t dim = 0;
  static absl::Span<const AttrField> Fields();
};
struct ExpandAttrs {
  PackedDims shape;
  static absl::Span<const AttrField> Fields();
};
struct AxisAttrs {  // squeeze, unsqueeze
  int32_t axis = 0;
  static absl::Span<const AttrField> Fields();
};
struct SelectAttrs {
  int32_t axis = 0;
  int64_t index = 0;
  static absl::Span<const AttrField> Fields();
};

OpFamily ViewOps();   // reshape transpose permute expand squeeze unsqueeze
OpFamily SliceOps();  // slice select slice_grad

}  // namespace tally

#endif  // TALLY_OPS_VIEW_H_
