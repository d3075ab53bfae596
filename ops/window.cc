#include "tally/ops/window.h"

#include "absl/strings/str_cat.h"

namespace tally {

namespace {
constexpr int64_t kMaxElements = int64_t{1} << 48;
}  // namespace

absl::Status ResolveWindow(const OpCall& call, const char* axis, const char* names, WindowAxis& a) {
  if (a.stride < 1 || a.dilation < 1) {
    return InvalidCall(call,
                       absl::StrCat("stride and dilation are 1 or more: along the ", axis,
                                    " they are ", a.stride, " and ", a.dilation),
                       names);
  }
  if (a.padding < 0) {
    return InvalidCall(
        call, absl::StrCat("padding is 0 or more: along the ", axis, " it is ", a.padding), names);
  }
  if (a.kernel < 1 || a.kernel > kMaxElements || a.in < 0 || a.in > kMaxElements) {
    return InvalidCall(call,
                       absl::StrCat("the kernel's ", axis, " is ", a.kernel, ", x's ", a.in,
                                    "; kernels have one element or more"),
                       names);
  }
  const Count extent = Count(a.dilation) * (a.kernel - 1) + 1;
  const Count padded = Count(a.in) + 2 * Count(a.padding);
  if (extent > padded) {
    return InvalidCall(call,
                       absl::StrCat("the kernel spans ", ToDecimal(extent), " along the ", axis,
                                    ", x with its padding has ", ToDecimal(padded)),
                       names);
  }
  a.out = static_cast<int64_t>((padded - extent) / a.stride + 1);
  return absl::OkStatus();
}

bool FitsWindows(absl::Span<const int64_t> dims) {
  int64_t room = kMaxElements;
  for (int64_t dim : dims) room /= std::max<int64_t>(1, dim);
  return room > 0;
}

}  // namespace tally
