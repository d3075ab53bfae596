// gather and scatter_add on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_AXIS_INDEX_GPU_H_
#define TALLY_OPS_AXIS_INDEX_GPU_H_

#include <cstdint>

#include "tally/ops/index_gpu.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// An index over data, both without gaps. Position (i, j, k) with the axis in the middle means the
// element data[i, id, k].
struct GpuAxisIndex {
  static constexpr int kMaxAxes = 8;

  GpuIds ids;
  int rank = 1, axis = 0;
  int64_t dims[kMaxAxes] = {};           // of the index
  int64_t index_strides[kMaxAxes] = {};  // in elements
  int64_t data_strides[kMaxAxes] = {};
  int64_t limit = 0;  // the data's size along the axis
};

// y = the elements of x, `item` bytes each, in the index's shape.
[[gnu::weak]] GpuError LaunchAxisGather(const GpuCall& call, const GpuAxisIndex& a, int64_t item,
                                        const void* x, void* y);

// y = x (null: zeros), n elements, and the updates, which have the index's shape, added in the
// order of positions along the axis. `sums` holds n f32 where dtype is narrower, else it is unused.
[[gnu::weak]] GpuError LaunchAxisScatterAdd(const GpuCall& call, const GpuAxisIndex& a, DType dtype,
                                            const void* updates, const void* x, int64_t n,
                                            float* sums, void* y);

}  // namespace tally::internal

#endif  // TALLY_OPS_AXIS_INDEX_GPU_H_
