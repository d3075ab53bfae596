// Kernels of the CUDA backend itself. Private to the CUDA library.
#ifndef TALLY_TENSOR_FILL_H_
#define TALLY_TENSOR_FILL_H_

#include "tally/tensor/gpu_call.h"

namespace tally::gpu {

// `count` items of 1, 2, 4 or 8 bytes, the low bytes of `value`.
GpuError FillItems(const GpuCall& call, void* out, uint64_t value, int64_t item, int64_t count);
// Matrices of `rows` rows of `columns` items; rows are `ld` items apart, matrices `stride`.
struct RepeatedRow {
  int64_t columns = 0, ld = 0, rows = 0, matrices = 1, stride = 0;
};
// Each row is a copy of `row`; null: of zeros.
GpuError RepeatRow(const GpuCall& call, void* out, const void* row, int64_t item,
                   const RepeatedRow& to);

}  // namespace tally::gpu

#endif  // TALLY_TENSOR_FILL_H_
