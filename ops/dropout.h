// Dropout with a mask that is the same on every device. f64 f32 bf16 f16.
//
//   y_i = keep_i ? x_i / (1 - p) : 0,  keep_i iff u_i >= p
// where u_i is the uniform of word i of the range that the call reserved: (seed, stream, offset +
// i). The mask (bool, a byte each) is the second output and all that the gradient reads.
//
// Cost per element: dropout other 2 (compare, product), dropout_grad other 1 (product); the random
// words cost nothing.
//
// Errors, thrown as Error (kInvalidArgument): p outside [0, 1], a dtype that is no computing float,
// a mask that is not bool of dy's shape.
#ifndef TALLY_OPS_DROPOUT_H_
#define TALLY_OPS_DROPOUT_H_

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct DropoutAttrs {
  double p = 0;
  uint64_t seed = 0;
  int32_t stream = 0;
  uint64_t offset = 0;  // recorded relative to the tape's base
  static absl::Span<const AttrField> Fields();
};
struct DropoutGradAttrs {
  double p = 0;
  static absl::Span<const AttrField> Fields();
};

// Takes numel(x) words from `random` on every device, meta included. Returns y.
Tensor Dropout(const Tensor& x, double p, Random& random);

// dropout_grad: (dy, mask) -> dx. It is linear in dy, and its own gradient.
extern const OpDef kDropout, kDropoutGrad;
OpFamily DropoutOps();

}  // namespace tally

#endif  // TALLY_OPS_DROPOUT_H_
