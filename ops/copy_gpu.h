// Copies, casts and fills on a GPU: what a launcher is told, without Abseil. Not part of the
// interface for users.
#ifndef TALLY_OPS_COPY_GPU_H_
#define TALLY_OPS_COPY_GPU_H_

#include <cstdint>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// Elements of a target and a source of one shape, both with any strides. Axes of size 1 are
// dropped and neighbours merged where both allow.
struct GpuPair {
  static constexpr int kMaxAxes = 8;

  int64_t numel = 0;
  int rank = 1;
  int64_t dims[kMaxAxes] = {};
  int64_t to[kMaxAxes] = {};    // strides of the target, in elements
  int64_t from[kMaxAxes] = {};  // and of the source; 0 where it repeats or is none
  void* target = nullptr;
  const void* source = nullptr;
};

// target = source, `item` bytes each.
[[gnu::weak]] GpuError LaunchCopy(const GpuCall& call, const GpuPair& pair, int64_t item);
// target = the low `item` bytes of `bits`.
[[gnu::weak]] GpuError LaunchFill(const GpuCall& call, const GpuPair& pair, int64_t item,
                                  uint64_t bits);
// y = x converted, n elements of both without gaps.
[[gnu::weak]] GpuError LaunchCast(const GpuCall& call, DType from, DType to, const void* x, void* y,
                                  int64_t n);
// target += source, and target *= factor, in the compute type of `dtype`.
[[gnu::weak]] GpuError LaunchAddTo(const GpuCall& call, const GpuPair& pair, DType dtype);
[[gnu::weak]] GpuError LaunchScale(const GpuCall& call, const GpuPair& pair, DType dtype,
                                   double factor);

}  // namespace tally::internal

#endif  // TALLY_OPS_COPY_GPU_H_
