// The sizes of one convolution, in terms that device code shares. Not part of the interface for
// users.
#ifndef TALLY_OPS_CONV_GEOMETRY_H_
#define TALLY_OPS_CONV_GEOMETRY_H_

#include <algorithm>
#include <cstdint>

#include "tally/ops/window_axis.h"

namespace tally {

// Elements of a panel, unless a single row of the output needs more: 1 MiB of f32, which the second
// level of cache holds beside what the product packs.
inline constexpr int64_t kConvPanel = int64_t{1} << 18;

struct ConvGeometry {
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  WindowAxis h, w;

  constexpr int64_t in_group() const { return in_channels / groups; }
  constexpr int64_t out_group() const { return out_channels / groups; }
  constexpr int64_t kernel() const { return h.kernel * w.kernel; }
  constexpr int64_t taps() const { return in_group() * kernel(); }  // of one output element
  constexpr int64_t in_plane() const { return h.in * w.in; }
  constexpr int64_t out_plane() const { return h.out * w.out; }

  constexpr bool depthwise() const { return in_group() == 1 && groups > 1; }
  constexpr bool pointwise() const { return Pointwise(h) && Pointwise(w); }
  constexpr bool patches() const { return Tiles(h) && Tiles(w); }
  // Output rows of one panel.
  constexpr int64_t panel_rows() const {
    return std::clamp(kConvPanel / std::max<int64_t>(1, taps() * w.out), int64_t{1},
                      std::max<int64_t>(1, h.out));
  }

 private:
  static constexpr bool Pointwise(const WindowAxis& a) {
    return a.kernel == 1 && a.stride == 1 && a.padding == 0;
  }
  static constexpr bool Tiles(const WindowAxis& a) {
    return a.kernel == a.stride && a.padding == 0 && (a.dilation == 1 || a.kernel == 1);
  }
};

}  // namespace tally

#endif  // TALLY_OPS_CONV_GEOMETRY_H_
