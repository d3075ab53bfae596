// Updates: ops that write a tensor in place. They have no gradients and never touch values that a
// tape keeps for one; every view of the storage sees the change. The target may have strides, as a
// view made by Transpose or Slice has.
#ifndef TALLY_OPS_UPDATE_H_
#define TALLY_OPS_UPDATE_H_

#include "tally/ops/op_table.h"

namespace tally {

// acc += g, same spec. f64 f32 bf16 f16. Cost: 1 per element. Op "add_".
void AddInPlace(const Tensor& acc, const Tensor& g);
// x = value everywhere, any dtype. Cost: 0. Op "fill_".
void FillInPlace(const Tensor& x, double value);
// dst = src, same spec, any dtype. Cost: 0. Op "copy_".
void CopyInPlace(const Tensor& dst, const Tensor& src);
// x *= value. f64 f32 bf16 f16. Cost: 1 per element. Op "scale_".
void ScaleInPlace(const Tensor& x, double value);

// Where both operands view one storage in different ways, the one that is read is copied first (a
// recorded op "contiguous"), so that the result does not depend on the order of writing.

struct ValueAttrs {
  double value = 0;
  static absl::Span<const AttrField> Fields();
};

OpFamily UpdateOps();

}  // namespace tally

#endif  // TALLY_OPS_UPDATE_H_
