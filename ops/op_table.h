// All ops by name: the families in order, then those that users added.
#ifndef TALLY_OPS_OP_TABLE_H_
#define TALLY_OPS_OP_TABLE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tally/ops/op_def.h"

namespace tally {

// Null when there is none.
const OpDef* FindOp(absl::string_view name);
// Built-in ops in table order, then registered ones in the order they came.
std::vector<const OpDef*> AllOps();

// Adds a user's op, so that files that name it can be read and priced. `op` must outlive the
// program's use of it. kAlreadyExists when the name is taken by another definition;
// kInvalidArgument when the definition is incomplete (no infer, no cost, a kernel missing is
// allowed: the op is meta only).
absl::Status RegisterOp(const OpDef& op);

using OpFamily = absl::Span<const OpDef* const>;

}  // namespace tally

#endif  // TALLY_OPS_OP_TABLE_H_
