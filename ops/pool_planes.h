// What pools share, and their kernels on contiguous planes. Not part of the interface for users.
#ifndef TALLY_OPS_POOL_PLANES_H_
#define TALLY_OPS_POOL_PLANES_H_

#include <cstdint>

#include "tally/ops/op_def.h"
#include "tally/ops/pool_gpu.h"
#include "tally/ops/window.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct PoolPlanes {
  DType dtype = DType::kF32;
  int64_t planes = 0;
  WindowAxis h, w;
  bool count_include_pad = true;  // averages
};

// Input 0 is images of a computing float.
absl::Status WantPlanes(const OpCall& call);
// ResolveWindow, and padding is at most half of what the kernel spans.
absl::Status ResolvePool(const OpCall& call, const char* axis, WindowAxis& a);
// x [N,C,L] as [N,C,1,L]; throws Error when it has other axes.
Tensor AsPlanes(const char* op, const Tensor& x);
inline int StrideOr(int stride, int kernel) { return stride == 0 ? kernel : stride; }

// As the launchers are told.
internal::GpuPool OnDevice(const PoolPlanes& p, const void* from, void* to);

void RunMaxPool(const PoolPlanes& p, const void* x, void* y, int64_t* index);
void RunAvgPool(const PoolPlanes& p, const void* x, void* y);
void RunAvgPoolGrad(const PoolPlanes& p, const void* dy, void* dx);

}  // namespace tally

#endif  // TALLY_OPS_POOL_PLANES_H_
