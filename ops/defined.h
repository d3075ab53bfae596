// For public functions that look at an operand before `Apply` sees it.
#ifndef TALLY_OPS_DEFINED_H_
#define TALLY_OPS_DEFINED_H_

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"

namespace tally {

// Throws Error, worded as Apply's, when an operand of `op` is undefined.
inline void RequireDefined(const char* op, std::initializer_list<TensorArg> in) {
  int i = 0;
  for (const TensorArg& arg : in) {
    if (!arg.tensor->defined()) ThrowInvalid(absl::StrCat(op, ": input ", i, " is undefined"));
    ++i;
  }
}

}  // namespace tally

#endif  // TALLY_OPS_DEFINED_H_
