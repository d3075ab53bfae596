// Cross entropy on a GPU. A target that is neither a class nor ignore_index is the fault kIndex of
// operand 1 (0 for one_hot); its row is left as an ignored one.
//
// Not part of the interface for users.
#ifndef TALLY_OPS_CROSS_ENTROPY_GPU_H_
#define TALLY_OPS_CROSS_ENTROPY_GPU_H_

#include "tally/ops/cross_entropy_rows.h"
#include "tally/tensor/gpu_call.h"

namespace tally {

// lse and the loss of each row as RunCrossEntropyRows, and their sum, or mean, into `loss` of the
// statistics' dtype.
[[gnu::weak]] GpuError LaunchCrossEntropy(const GpuCall& call, const CrossEntropyRows& a, bool mean,
                                          void* lse, double* losses, void* loss);
// dlogits times dy, a scalar of the statistics' dtype, over the rows that count where `mean`.
[[gnu::weak]] GpuError LaunchCrossEntropyGrad(const GpuCall& call, const CrossEntropyRows& a,
                                              bool mean, const void* lse, const void* dy,
                                              void* dlogits);
// Of `a` the rows, classes, ignore_index, targets, and `dtype` of y.
[[gnu::weak]] GpuError LaunchOneHot(const GpuCall& call, const CrossEntropyRows& a, void* y);

}  // namespace tally

#endif  // TALLY_OPS_CROSS_ENTROPY_GPU_H_
