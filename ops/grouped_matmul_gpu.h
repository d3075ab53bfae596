// Products of groups of rows on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_GROUPED_MATMUL_GPU_H_
#define TALLY_OPS_GROUPED_MATMUL_GPU_H_

#include <cstdint>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// Rows [offsets[g], offsets[g + 1]) are of group g; offsets [groups + 1] lie on the device, and are
// a fault of input 2 unless they ascend from 0 to `rows`. Strides are in elements; of the rows and
// the columns of a, and of b, one is 1.
struct GpuGroups {
  DType dtype = DType::kF32;
  const int64_t* offsets = nullptr;
  int64_t groups = 0, rows = 0;
  const void* a = nullptr;  // [rows, p]
  int64_t a_row = 0, a_column = 0;
  const void* b = nullptr;  // [groups, p, q] in the product, [rows, q] in the weight's gradient
  int64_t b_group = 0, b_row = 0, b_column = 0;
  int64_t p = 0, q = 0;
  void* y = nullptr;  // no gaps
};

// y [rows, q]: y[r] = a[r] · b[group of r].
[[gnu::weak]] GpuError LaunchGroupedProduct(const GpuCall& call, const GpuGroups& g);
// y [groups, p, q]: y[g] = a[rows of g]ᵀ · b[rows of g].
[[gnu::weak]] GpuError LaunchGroupedOuter(const GpuCall& call, const GpuGroups& g);

}  // namespace tally::internal

#endif  // TALLY_OPS_GROUPED_MATMUL_GPU_H_
