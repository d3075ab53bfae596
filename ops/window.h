// Sliding windows along one axis: what convolutions and pools share. Not part of the interface for
// users.
#ifndef TALLY_OPS_WINDOW_H_
#define TALLY_OPS_WINDOW_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tally/ops/op_def.h"

namespace tally {

// x has `in` elements along the axis, y `out`.
struct WindowAxis {
  int64_t in = 0, out = 0, kernel = 1;
  int64_t stride = 1, padding = 0, dilation = 1;

  // Elements that the kernel spans.
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  // Where output 0 reads x through this tap; negative on padding.
  int64_t offset(int64_t tap) const { return tap * dilation - padding; }
  // Outputs [begin, end) read elements of x through this tap; the others read padding.
  int64_t begin(int64_t tap) const { return std::min(out, CeilDiv(-offset(tap))); }
  int64_t end(int64_t tap) const {
    return std::max(begin(tap), std::min(out, CeilDiv(in - offset(tap))));
  }

 private:
  int64_t CeilDiv(int64_t n) const { return n <= 0 ? 0 : (n - 1) / stride + 1; }
};

// Sets `out` = (in + 2 padding - extent) / stride + 1, rounded down. Refuses sizes, strides,
// paddings and dilations that are none, and a kernel larger than the padded x. `axis` is "height"
// or "width"; `names` as in InvalidCall.
absl::Status ResolveWindow(const OpCall& call, const char* axis, const char* names, WindowAxis& a);

// Whether the product of these dims, those of 0 taken as 1, is at most 2^48: so that no product of
// some of them overflows, whatever a file says.
bool FitsWindows(absl::Span<const int64_t> dims);

}  // namespace tally

#endif  // TALLY_OPS_WINDOW_H_
