// slice_grad on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_SLICE_GPU_H_
#define TALLY_OPS_SLICE_GPU_H_

#include <cstdint>

#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// x [outer, count, inner] goes to y [outer, dim, inner]: row b of an outer index to row begin + b
// step. Everything else of y is 0.
struct GpuPlacing {
  int64_t item = 1;  // bytes of an element
  int64_t outer = 1, dim = 0, inner = 1;
  int64_t begin = 0, count = 0, step = 1;
  const void* x = nullptr;
  void* y = nullptr;
};

[[gnu::weak]] GpuError LaunchPlacing(const GpuCall& call, const GpuPlacing& placing);

}  // namespace tally::internal

#endif  // TALLY_OPS_SLICE_GPU_H_
