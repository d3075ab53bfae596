// Joining tensors along an axis and splitting them apart.
//
// Errors throw Error (kInvalidArgument): dtypes or the other dims differ, an axis out of range,
// sizes that do not add up.
#ifndef TALLY_OPS_JOIN_H_
#define TALLY_OPS_JOIN_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// The tensors one after the other along `axis`; at least one, equal in dtype and every other dim.
Tensor Cat(absl::Span<const Tensor> tensors, int axis);
// The tensors, all of one spec, along a new axis that becomes `axis` of the result: views that give
// each the axis, then Cat.
Tensor Stack(absl::Span<const Tensor> tensors, int axis);
// Views of consecutive parts along `axis`; sizes add up to the dim. Up to 8 parts are one node
// "split", whose gradient is one concatenation; more are splits of splits.
Tensors Split(const Tensor& x, absl::Span<const int64_t> sizes, int axis);
// The same with equal parts. `parts` divides the dim.
Tensors SplitEvenly(const Tensor& x, int64_t parts, int axis);

struct CatAttrs {
  int32_t axis = 0;
  static absl::Span<const AttrField> Fields();
};
struct SplitAttrs {
  PackedDims sizes;
  int32_t axis = 0;
  static absl::Span<const AttrField> Fields();
};

OpFamily JoinOps();

}  // namespace tally

#endif  // TALLY_OPS_JOIN_H_
