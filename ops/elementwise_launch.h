// From tensors to GpuElementwise. Not part of the interface for users.
#ifndef TALLY_OPS_ELEMENTWISE_LAUNCH_H_
#define TALLY_OPS_ELEMENTWISE_LAUNCH_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/elementwise_gpu.h"
#include "tally/ops/op_def.h"
#include "tally/tensor/gpu.h"

namespace tally::internal {

// The inputs over the outputs' index space; `dtype` is the inputs'.
GpuElementwise OverGpu(DType dtype, absl::Span<const ElementwiseInput> in,
                       absl::Span<const Tensor> out);

// Launches one row of a table; nothing for no elements.
template <typename Row>
absl::Status RunOnGpu(GpuError (*launch)(const GpuCall&, Row, const GpuElementwise&), Row row,
                      DType dtype, absl::Span<const ElementwiseInput> in,
                      absl::Span<const Tensor> out) {
  if (out[0].numel() == 0) return absl::OkStatus();
  return OnGpu(out[0].device(),
               [&](const GpuCall& call) { return launch(call, row, OverGpu(dtype, in, out)); });
}

}  // namespace tally::internal

#endif  // TALLY_OPS_ELEMENTWISE_LAUNCH_H_
