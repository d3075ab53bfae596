#include "tally/ops/elementwise.cuh"

namespace tally::gpu {
namespace {

// Bytes move; what they mean does not matter. `e` as in ElementwiseKernel.
template <typename T>
__global__ void SelectKernel(const __grid_constant__ GpuElementwise e, T number) {
  const auto* cond = static_cast<const bool*>(e.in[0]);
  const auto* yes = static_cast<const T*>(e.in[1]);
  const auto* no = static_cast<const T*>(e.in[2]);
  for (int64_t i = GlobalThread(); i < e.numel; i += GlobalThreads()) {
    int64_t at[3] = {i, i, i};
    if (!e.flat) OffsetsOf<3>(e, i, at);
    for (int k = 0; k < 3; ++k) {
      if (e.repeats[k]) at[k] = 0;
    }
    const bool take = cond[at[0]];
    const T* from = take ? yes : no;
    static_cast<T*>(e.out[0])[i] = from == nullptr ? number : from[take ? at[1] : at[2]];
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchSelect(const GpuCall& call, const GpuElementwise& e, uint64_t bits) {
  return gpu::VisitSize(ItemSize(e.dtype), [&](auto element) {
    using T = decltype(element);
    return gpu::Launch(gpu::SelectKernel<T>, gpu::GridFor(call, e.numel), gpu::kBlock, 0, call, e,
                       static_cast<T>(bits));
  });
}

}  // namespace tally::internal
