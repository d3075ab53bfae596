// Elements picked by index along one axis, and added back: each is the other's gradient.
//
// The index has the rank of the data, and outside the axis no dim greater than the data's; along
// the axis any number of positions, repeated ones too. i64 or i32. An index out of range is
// kOutOfRange, found on the cpu before anything is written; meta cannot see it.
//
// Cost: gather 0. scatter_add one add per update element, into zeros too (other = numel of
// updates).
//
// Errors, thrown as Error (kInvalidArgument): ranks, dims or dtypes that do not fit, an axis
// outside the shape.
#ifndef TALLY_OPS_AXIS_INDEX_H_
#define TALLY_OPS_AXIS_INDEX_H_

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// y has the shape of the index. For axis 1 of three:
//   y[i, j, k] = x[i, index[i, j, k], k]
// Any dtype.
Tensor Gather(const Tensor& x, int axis, const Tensor& index);

// y of `shape`: zeros to which updates are added. updates has the shape of the index. For axis 1
// of three:
//   y[i, index[i, j, k], k] += updates[i, j, k]
// f64 f32 bf16 f16. Each element is summed in the order of positions along the axis, in f32 for
// narrow floats, and rounded once: its bits do not depend on the number of threads.
Tensor ScatterAdd(const Shape& shape, int axis, const Tensor& index, const Tensor& updates);
// The same added to x, the first term of each sum. x is not changed.
Tensor ScatterAdd(const Tensor& x, int axis, const Tensor& index, const Tensor& updates);

struct GatherAttrs {
  int32_t axis = 0;
  static absl::Span<const AttrField> Fields();
};
struct ScatterAddAttrs {
  PackedDims shape;
  int32_t axis = 0;
  static absl::Span<const AttrField> Fields();
};

// gather: (x, index). scatter_add: (updates, index) or (updates, index, x).
extern const OpDef kGather, kScatterAdd;
OpFamily AxisIndexOps();

}  // namespace tally

#endif  // TALLY_OPS_AXIS_INDEX_H_
