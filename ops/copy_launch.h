// Copies and fills of tensors on a GPU, for every op that moves elements. Not part of the interface
// for users.
#ifndef TALLY_OPS_COPY_LAUNCH_H_
#define TALLY_OPS_COPY_LAUNCH_H_

#include "absl/status/status.h"
#include "tally/ops/copy_gpu.h"
#include "tally/tensor/tensor.h"

namespace tally::internal {

// `target`, and `source` where it is not null, over the target's shape.
GpuPair PairOf(const Tensor& target, const Tensor* source);

// CopyElements and FillElements (copy.h) on the GPU where the target lies.
absl::Status CopyOnGpu(const Tensor& target, const Tensor& source);
absl::Status FillOnGpu(const Tensor& target, double value);

}  // namespace tally::internal

#endif  // TALLY_OPS_COPY_LAUNCH_H_
