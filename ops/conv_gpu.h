// Convolution on a GPU: what a launcher is told, without Abseil. Not part of the interface for
// users.
#ifndef TALLY_OPS_CONV_GPU_H_
#define TALLY_OPS_CONV_GPU_H_

#include <cstdint>

#include "tally/ops/conv_geometry.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// Contiguous operands, one of x, w and y the result.
struct GpuConv {
  ConvGeometry g;
  DType dtype = DType::kF32;
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;  // forward only; null: none
  // Of the gradient of w: room for `splits` sums of the compute type for every element, where the
  // pixels are dealt to more than one block; else null.
  void* partial = nullptr;
  int64_t splits = 1;
};

// In how many parts the pixels are summed: enough for a device to be busy, no more than `room`
// bytes hold. The same on every device, so that the result is.
int64_t ConvWeightGradSplits(const ConvGeometry& g, DType dtype, int64_t room);

// As products of matrices that are never made, or, for depthwise geometry and very long axes,
// element by element.
[[gnu::weak]] GpuError LaunchConvForward(const GpuCall& call, const GpuConv& f);
[[gnu::weak]] GpuError LaunchConvInputGrad(const GpuCall& call, const GpuConv& f);
[[gnu::weak]] GpuError LaunchConvWeightGrad(const GpuCall& call, const GpuConv& f);
// y = bias in every pixel.
[[gnu::weak]] GpuError LaunchConvBias(const GpuCall& call, const GpuConv& f);

}  // namespace tally::internal

#endif  // TALLY_OPS_CONV_GPU_H_
