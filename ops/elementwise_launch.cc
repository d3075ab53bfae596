#include "tally/ops/elementwise_launch.h"

#include <array>

#include "tally/tensor/check.h"

namespace tally::internal {

GpuElementwise OverGpu(DType dtype, absl::Span<const ElementwiseInput> in,
                       absl::Span<const Tensor> out) {
  static_assert(GpuElementwise::kMaxIn == kMaxInputs && GpuElementwise::kMaxAxes == kMaxRank);
  GpuElementwise e;
  e.dtype = dtype;
  e.inputs = static_cast<int>(in.size());
  e.numel = out[0].numel();
  std::array<const Tensor*, Walk::kMaxOperands> operands{&out[0]};
  for (size_t k = 0; k < in.size(); ++k) {
    const Tensor* tensor = in[k].tensor;
    operands[k + 1] = tensor;
    e.number[k] = in[k].scalar;
    if (tensor == nullptr) continue;
    e.in[k] = tensor->raw();
    e.repeats[k] = tensor->numel() == 1;
    if (!e.repeats[k]) e.flat &= tensor->contiguous() && tensor->shape() == out[0].shape();
  }
  for (size_t j = 0; j < out.size(); ++j) {
    TALLY_CHECK(out[j].contiguous()) << "a kernel's outputs are contiguous";
    e.out[j] = out[j].raw();
  }
  if (e.flat) return e;
  const Walk walk = Walk::Over(out[0].shape(), absl::MakeSpan(operands.data(), in.size() + 1));
  e.rank = walk.rank;
  for (int d = 0; d < walk.rank; ++d) {
    e.dims[d] = walk.dims[d];
    for (int k = 0; k < e.inputs; ++k) e.strides[k][d] = walk.strides[k + 1][d];
  }
  return e;
}

}  // namespace tally::internal
