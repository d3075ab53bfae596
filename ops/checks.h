// Checks that most `infer` functions begin with. They return statuses; Apply puts the op's name
// before the message.
#ifndef TALLY_OPS_CHECKS_H_
#define TALLY_OPS_CHECKS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tally/ops/op_def.h"

namespace tally {

// The call has exactly `count` inputs. A file may say anything.
absl::Status WantInputs(const OpCall& call, int count);

// Sets `*resolved` to `axis` counted from the front; negative axes count from the end of `rank`.
absl::Status ResolveAxis(const OpCall& call, int axis, int rank, int* resolved);

// The same for a caller that knows the axis is valid.
inline int FromFront(int axis, int rank) { return axis < 0 ? axis + rank : axis; }

// The output is of the dtype of input 0, with these dims. Sizes from attributes may overflow.
absl::Status SetShape(const OpCall& call, absl::Span<const int64_t> dims, Specs& out);

}  // namespace tally

#endif  // TALLY_OPS_CHECKS_H_
