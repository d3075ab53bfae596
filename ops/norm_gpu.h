// Layer and RMS normalisation on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_NORM_GPU_H_
#define TALLY_OPS_NORM_GPU_H_

#include "tally/ops/norm_rows.h"
#include "tally/tensor/gpu_call.h"

namespace tally {

// As the functions of norm_rows.h. Rows of no elements have NaN as their statistics.
[[gnu::weak]] GpuError LaunchNorm(const GpuCall& call, const NormRows& a, double eps, void* y,
                                  void* mean, void* rstd);
[[gnu::weak]] GpuError LaunchNormGrad(const GpuCall& call, const NormRows& a, const void* dy,
                                      const void* mean, const void* rstd, void* dx);
[[gnu::weak]] GpuError LaunchNormParamGradBlocks(const GpuCall& call, const NormRows& a,
                                                 const void* dy, const void* mean, const void* rstd,
                                                 void* dw, void* db);

}  // namespace tally

#endif  // TALLY_OPS_NORM_GPU_H_
