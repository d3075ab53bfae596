// Device code over positions.
#ifndef TALLY_OPS_INDEX_CUH_
#define TALLY_OPS_INDEX_CUH_

#include "tally/ops/index_gpu.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

using internal::GpuIds;

constexpr unsigned kAllLanes = 0xffffffffu;

// The part of a power of two to which an id belongs.
__device__ inline int64_t PartOf(int64_t id, int64_t parts) {
  return (id ^ id >> 32) & (parts - 1);
}
// The largest power of two up to `most`, or the least that gives each of `rows` a part of its own
// when that is less.
inline int64_t PartsFor(int64_t rows, int64_t most) {
  int64_t parts = 1;
  while (parts * 2 <= most && parts < rows) parts *= 2;
  return parts;
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_INDEX_CUH_
