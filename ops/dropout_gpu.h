// dropout on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_DROPOUT_GPU_H_
#define TALLY_OPS_DROPOUT_GPU_H_

#include <cstdint>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// y_i = keep_i ? x_i scale : 0 for n elements.
struct GpuDropout {
  DType dtype = DType::kF32;
  int64_t n = 0;
  double scale = 1;
  const void* x = nullptr;
  void* y = nullptr;
  bool* mask = nullptr;  // keep_i
  // Of a mask that is made: keep_i iff word offset + i of (seed, stream), without its low 8 bits,
  // reaches the threshold.
  uint32_t threshold = 0;
  uint32_t stream = 0;
  uint64_t seed = 0, offset = 0;
};

// Makes the mask and writes it, or reads it.
[[gnu::weak]] GpuError LaunchDropout(const GpuCall& call, const GpuDropout& d);
[[gnu::weak]] GpuError LaunchDropoutGrad(const GpuCall& call, const GpuDropout& d);

}  // namespace tally::internal

#endif  // TALLY_OPS_DROPOUT_GPU_H_
