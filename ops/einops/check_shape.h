// CheckShape: the axes of a tensor, checked and named in one line, as jaxtyping does.
//
//   AxisSizes dims;
//   CheckShape(x, "batch seq hidden", &dims);          binds three names
//   CheckShape(y, "batch seq (heads size)", &dims);    batch and seq must agree
//   CheckShape(z, "*batch 3*hidden", &dims);
//
// One word for each axis, separated by spaces:
//   name       any size, the same wherever the name stands, here and in `dims`
//   12         this size
//   _          any size
//   (h d)      the product of names and numbers; one name may be new, and is bound by division
//   h*d-1      + - * of names and numbers without spaces, * first; all names must be bound
//   ...        any number of axes
//   *batch     any number of axes, the same dims wherever "*batch" stands; at most one of these two
// Names in words of their own are bound before products and expressions are computed, wherever
// they stand.
//
// Under a tape the value gets the words as the names of its axes, which graph texts, drawings and
// reports show: "batch seq heads*size". Axes under "..." and "_" are "_", those under "*batch" are
// "*batch".
//
// Errors, thrown as Error (kInvalidArgument), with the tensor, the pattern and the place in it
// underlined, and, where sizes differ, the axis, what was expected and what was found. `dims` then
// stays as it was.
#ifndef TALLY_OPS_EINOPS_CHECK_SHAPE_H_
#define TALLY_OPS_EINOPS_CHECK_SHAPE_H_

#include "absl/strings/string_view.h"
#include "tally/ops/einops/axis_sizes.h"
#include "tally/tensor/tensor.h"

namespace tally {

void CheckShape(const Tensor& x, absl::string_view pattern, AxisSizes* dims = nullptr);

}  // namespace tally

#endif  // TALLY_OPS_EINOPS_CHECK_SHAPE_H_
