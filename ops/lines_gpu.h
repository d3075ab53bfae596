// Ops along the lines of an axis on a GPU: what launchers are told, without Abseil. Not part of the
// interface for users.
#ifndef TALLY_OPS_LINES_GPU_H_
#define TALLY_OPS_LINES_GPU_H_

#include <cstdint>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally {

// Contiguous [outer, n, inner] of f64, f32, bf16 or f16.
struct GpuLines {
  DType dtype = DType::kF32;
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
};

// out [outer, inner] of i64.
[[gnu::weak]] GpuError LaunchArgMax(const GpuCall& call, const GpuLines& l, const void* x,
                                    void* out);
// Of rows (inner = 1) the first k, with 1 <= k <= n: values [outer, k] and indices of i64.
[[gnu::weak]] GpuError LaunchTopK(const GpuCall& call, const GpuLines& l, int64_t k, const void* x,
                                  void* values, void* indices);
[[gnu::weak]] GpuError LaunchCumsum(const GpuCall& call, const GpuLines& l, bool reverse,
                                    const void* x, void* y);
// dy [outer, inner]. `left` has room for an element of the compute type for each of x; where that
// is x's own type it may be dx.
[[gnu::weak]] GpuError LaunchProdGrad(const GpuCall& call, const GpuLines& l, const void* x,
                                      const void* dy, void* left, void* dx);

// The variance of n elements each, for an index space of outputs and one of elements: dims and
// strides in elements of x, innermost last; neighbours merged.
struct GpuVar {
  static constexpr int kMaxAxes = 8;
  struct Space {
    int rank = 0;
    int64_t dims[kMaxAxes] = {};
    int64_t strides[kMaxAxes] = {};
  };

  DType dtype = DType::kF32;
  int64_t outputs = 0;
  int64_t n = 0;
  int64_t divisor = 0;
  Space kept, reduced;
};
[[gnu::weak]] GpuError LaunchVar(const GpuCall& call, const GpuVar& a, const void* x, void* y);

}  // namespace tally

#endif  // TALLY_OPS_LINES_GPU_H_
