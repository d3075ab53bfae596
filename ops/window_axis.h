// One axis of sliding windows, in terms that device code shares. Not part of the interface for
// users.
#ifndef TALLY_OPS_WINDOW_AXIS_H_
#define TALLY_OPS_WINDOW_AXIS_H_

#include <algorithm>
#include <cstdint>

namespace tally {

// x has `in` elements along the axis, y `out`.
struct WindowAxis {
  int64_t in = 0, out = 0, kernel = 1;
  int64_t stride = 1, padding = 0, dilation = 1;

  // Elements that the kernel spans.
  constexpr int64_t extent() const { return dilation * (kernel - 1) + 1; }
  // Where output 0 reads x through this tap; negative on padding.
  constexpr int64_t offset(int64_t tap) const { return tap * dilation - padding; }
  // Outputs [begin, end) read elements of x through this tap; the others read padding.
  constexpr int64_t begin(int64_t tap) const { return std::min(out, CeilDiv(-offset(tap))); }
  constexpr int64_t end(int64_t tap) const {
    return std::max(begin(tap), std::min(out, CeilDiv(in - offset(tap))));
  }

 private:
  constexpr int64_t CeilDiv(int64_t n) const { return n <= 0 ? 0 : (n - 1) / stride + 1; }
};

// Of pools, which have no dilation where they average: what the window of output `o` is divided by
// along one axis.
constexpr int64_t WindowCount(const WindowAxis& a, int64_t o, bool include_pad) {
  const int64_t begin = o * a.stride - a.padding;
  return include_pad ? a.kernel : std::min(begin + a.kernel, a.in) - std::max<int64_t>(begin, 0);
}
// And the outputs [begin, end) along an axis whose windows hold element `at` of x.
struct WindowRange {
  int64_t begin, end;
};
constexpr WindowRange WindowsOver(const WindowAxis& a, int64_t at) {
  const int64_t last = (at + a.padding) / a.stride;
  const int64_t before = at + a.padding - a.kernel;
  const int64_t begin = before < 0 ? 0 : before / a.stride + 1;
  return {begin, std::min(last + 1, a.out)};
}

}  // namespace tally

#endif  // TALLY_OPS_WINDOW_AXIS_H_
