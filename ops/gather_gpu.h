// gather_rows and scatter_add_rows on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_GATHER_GPU_H_
#define TALLY_OPS_GATHER_GPU_H_

#include <cstdint>

#include "tally/ops/index_gpu.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// y[i] = table[ids[i]], rows of `bytes` bytes; the table has `rows`. An element's size divides
// `bytes` and the addresses: `item`.
[[gnu::weak]] GpuError LaunchGatherRows(const GpuCall& call, const GpuIds& ids, const void* table,
                                        int64_t rows, int64_t bytes, int64_t item, void* y);

// y[r] = the sum of updates[order[i]] for begin[r] <= i < begin[r + 1], in this order; rows of d.
[[gnu::weak]] GpuError LaunchAddRows(const GpuCall& call, DType dtype, const void* updates,
                                     const int64_t* begin, const int64_t* order, int64_t rows,
                                     int64_t d, void* y);

}  // namespace tally::internal

#endif  // TALLY_OPS_GATHER_GPU_H_
