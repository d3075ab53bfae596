// Sliding windows along one axis: what convolutions and pools share. Not part of the interface for
// users.
#ifndef TALLY_OPS_WINDOW_H_
#define TALLY_OPS_WINDOW_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tally/ops/op_def.h"
#include "tally/ops/window_axis.h"

namespace tally {

// Sets `out` = (in + 2 padding - extent) / stride + 1, rounded down. Refuses sizes, strides,
// paddings and dilations that are none, and a kernel larger than the padded x. `axis` is "height"
// or "width"; `names` as in InvalidCall.
absl::Status ResolveWindow(const OpCall& call, const char* axis, const char* names, WindowAxis& a);

// Whether the product of these dims, those of 0 taken as 1, is at most 2^48: so that no product of
// some of them overflows, whatever a file says.
bool FitsWindows(absl::Span<const int64_t> dims);

}  // namespace tally

#endif  // TALLY_OPS_WINDOW_H_
