// The sizes of one convolution, and its kernels. Not part of the interface for users.
#ifndef TALLY_OPS_CONV_GEOMETRY_H_
#define TALLY_OPS_CONV_GEOMETRY_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "tally/ops/window.h"
#include "tally/tensor/device.h"
#include "tally/tensor/dtype.h"

namespace tally {

// Elements of a panel, unless a single row of the output needs more: 1 MiB of f32, which the second
// level of cache holds beside what the product packs.
inline constexpr int64_t kConvPanel = int64_t{1} << 18;

struct ConvGeometry {
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  WindowAxis h, w;

  int64_t in_group() const { return in_channels / groups; }
  int64_t out_group() const { return out_channels / groups; }
  int64_t kernel() const { return h.kernel * w.kernel; }
  int64_t taps() const { return in_group() * kernel(); }  // of one output element
  int64_t in_plane() const { return h.in * w.in; }
  int64_t out_plane() const { return h.out * w.out; }

  bool depthwise() const { return in_group() == 1 && groups > 1; }
  bool pointwise() const { return Pointwise(h) && Pointwise(w); }
  bool patches() const { return Tiles(h) && Tiles(w); }
  // Output rows of one panel.
  int64_t panel_rows() const {
    return std::clamp(kConvPanel / std::max<int64_t>(1, taps() * w.out), int64_t{1},
                      std::max<int64_t>(1, h.out));
  }

 private:
  static bool Pointwise(const WindowAxis& a) {
    return a.kernel == 1 && a.stride == 1 && a.padding == 0;
  }
  static bool Tiles(const WindowAxis& a) {
    return a.kernel == a.stride && a.padding == 0 && (a.dilation == 1 || a.kernel == 1);
  }
};

// Contiguous operands of `dtype`, one of x, w, y a result and the other two given.
struct ConvOperands {
  DType dtype = DType::kF32;
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;  // forward only; null: none
  Device device = kCpu;
  void* scratch = nullptr;
};

// Scratch bytes of each, and the runs. Results are written whole.
int64_t ConvForwardScratch(const ConvGeometry& g, DType dtype);
int64_t ConvInputGradScratch(const ConvGeometry& g, DType dtype);
int64_t ConvWeightGradScratch(const ConvGeometry& g, DType dtype);
absl::Status RunConvForward(const ConvGeometry& g, const ConvOperands& o);     // y from x, w, bias
absl::Status RunConvInputGrad(const ConvGeometry& g, const ConvOperands& o);   // x from y, w
absl::Status RunConvWeightGrad(const ConvGeometry& g, const ConvOperands& o);  // w from y, x

// The same for depthwise geometry.
void RunDepthwiseForward(const ConvGeometry& g, const ConvOperands& o);
void RunDepthwiseInputGrad(const ConvGeometry& g, const ConvOperands& o);
void RunDepthwiseWeightGrad(const ConvGeometry& g, const ConvOperands& o);

}  // namespace tally

#endif  // TALLY_OPS_CONV_GEOMETRY_H_
