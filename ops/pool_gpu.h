// Pools on a GPU: what a launcher is told, without Abseil. Not part of the interface for users.
#ifndef TALLY_OPS_POOL_GPU_H_
#define TALLY_OPS_POOL_GPU_H_

#include <cstdint>

#include "tally/ops/window_axis.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

struct GpuPool {
  DType dtype = DType::kF32;
  int64_t planes = 0;
  WindowAxis h, w;
  bool count_include_pad = true;  // averages
  const void* from = nullptr;     // x, or dy
  void* to = nullptr;             // y, or dx
};
[[gnu::weak]] GpuError LaunchMaxPool(const GpuCall& call, const GpuPool& f, int64_t* index);
[[gnu::weak]] GpuError LaunchAvgPool(const GpuCall& call, const GpuPool& f);
[[gnu::weak]] GpuError LaunchAvgPoolGrad(const GpuCall& call, const GpuPool& f);

// `count` positions in each plane of `plane` elements. An index outside raises a fault in operand 1
// and is passed over.
struct GpuPoolIndex {
  DType dtype = DType::kF32;
  int64_t planes = 0, plane = 0, count = 0;
  const void* from = nullptr;  // dy, or x
  const int64_t* index = nullptr;
  void* to = nullptr;  // dx, or y
  // Of the gradient of narrow floats: planes of f32 to add up in, for min(buffers, planes).
  float* sums = nullptr;
  int64_t buffers = 0;
};
// Adds in the order of outputs, as the CPU does: the same bits.
[[gnu::weak]] GpuError LaunchMaxPoolGrad(const GpuCall& call, const GpuPoolIndex& f);
[[gnu::weak]] GpuError LaunchMaxPoolPick(const GpuCall& call, const GpuPoolIndex& f);

}  // namespace tally::internal

#endif  // TALLY_OPS_POOL_GPU_H_
