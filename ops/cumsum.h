// Running sums along an axis.
//
// Cost per line of n: other n-1.
//
// Errors, thrown as Error (kInvalidArgument): an axis outside the shape, a dtype that is no
// computing float.
#ifndef TALLY_OPS_CUMSUM_H_
#define TALLY_OPS_CUMSUM_H_

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

// y[i] = x[0] + ... + x[i] along `axis`; reverse: x[i] + ... + x[n-1]. f64 f32 bf16 f16. The
// running sum is kept in double for f32 and in f32 for narrow floats, and each element is rounded
// from it once. The gradient is the sum in the other direction.
Tensor Cumsum(const Tensor& x, int axis, bool reverse = false);

struct CumsumAttrs {
  int32_t axis = 0;
  bool reverse = false;
  static absl::Span<const AttrField> Fields();
};

extern const OpDef kCumsum;
OpFamily CumsumOps();

}  // namespace tally

#endif  // TALLY_OPS_CUMSUM_H_
