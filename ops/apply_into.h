// TryApplyInto: Apply for a schedule that keeps some outputs of an op from an earlier run.
#ifndef TALLY_OPS_APPLY_INTO_H_
#define TALLY_OPS_APPLY_INTO_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tally/ops/apply.h"

namespace tally {

// As TryApply and TryApplyOn, but for what `out` brings: of a compute op, out[j] that is defined is
// written again in place of being allocated; it must have the spec that the op infers, be
// contiguous and lie on `device`. Of views and updates `out` is empty. Its versions stay as they
// are: running an op again with the same operands gives the same bits.
//
// Not recorded: to a recorder what is written would seem new. On an error the defined outputs may
// hold anything.
absl::Status TryApplyInto(Device device, const OpDef& op, absl::Span<const TensorArg> in,
                          const Attrs& attrs, Tensors& out);

}  // namespace tally

#endif  // TALLY_OPS_APPLY_INTO_H_
