// Convolution on a GPU. Pointwise kernels are products of matrices and go to the backend; the
// others have kernels that read x where it lies. The scratch of the CPU's panels holds partial sums
// of the gradient of w, and is left alone by the other two.
#include "tally/ops/conv_gpu.h"

#include "tally/ops/conv_kernels.h"
#include "tally/tensor/check.h"
#include "tally/tensor/gpu.h"

namespace tally {
namespace {

internal::GpuConv OnDevice(const ConvGeometry& g, const ConvOperands& o) {
  return {.g = g, .dtype = o.dtype, .x = o.x, .w = o.w, .y = o.y, .bias = o.bias};
}

}  // namespace

namespace internal {

int64_t ConvWeightGradSplits(const ConvGeometry& g, DType dtype, int64_t room) {
  constexpr int64_t kTile = 64, kBlocks = 512, kLeastPixels = 1024;
  const auto tiles = [](int64_t n) { return (n + kTile - 1) / kTile; };
  const int64_t blocks = g.groups * tiles(g.out_group()) * tiles(g.taps());
  const int64_t sums = g.out_channels * g.taps() * (dtype == DType::kF64 ? 8 : 4);
  const int64_t pixels = g.batch * g.out_plane();
  if (blocks == 0 || g.depthwise()) return 1;
  return std::max<int64_t>(1, std::min({kBlocks / blocks, pixels / kLeastPixels, room / sums}));
}

}  // namespace internal

absl::Status RunConvForwardOnGpu(const ConvGeometry& g, const ConvOperands& o) {
  if (g.batch * g.out_channels * g.out_plane() == 0) return absl::OkStatus();
  const internal::GpuConv f = OnDevice(g, o);
  const bool product = g.pointwise() && !g.depthwise() && g.taps() > 0;
  if (!product || o.bias != nullptr) {
    TALLY_RETURN_IF_ERROR(OnGpu(o.device, [&](const GpuCall& call) {
      return product ? internal::LaunchConvBias(call, f) : internal::LaunchConvForward(call, f);
    }));
  }
  return product ? RunPointwiseForward(g, o) : absl::OkStatus();
}

absl::Status RunConvInputGradOnGpu(const ConvGeometry& g, const ConvOperands& o) {
  if (g.batch * g.in_channels * g.in_plane() == 0) return absl::OkStatus();
  if (g.pointwise() && !g.depthwise() && g.out_channels > 0) return RunPointwiseInputGrad(g, o);
  return OnGpu(o.device, [&](const GpuCall& call) {
    return internal::LaunchConvInputGrad(call, OnDevice(g, o));
  });
}

absl::Status RunConvWeightGradOnGpu(const ConvGeometry& g, const ConvOperands& o) {
  if (g.out_channels * g.taps() == 0) return absl::OkStatus();
  internal::GpuConv f = OnDevice(g, o);
  f.splits = internal::ConvWeightGradSplits(g, o.dtype, ConvWeightGradScratch(g, o.dtype));
  if (f.splits > 1) f.partial = o.scratch;
  return OnGpu(o.device,
               [&](const GpuCall& call) { return internal::LaunchConvWeightGrad(call, f); });
}

}  // namespace tally
