#include "tally/ops/copy.cuh"

namespace tally::gpu {
namespace {

// Targets with strides; those without are written by the elementwise kernels.
template <typename T>
__global__ void AddToKernel(GpuPair p) {
  auto* const to = static_cast<T*>(p.target);
  const auto* const from = static_cast<const T*>(p.source);
  for (int64_t i = GlobalThread(); i < p.numel; i += GlobalThreads()) {
    const Places at = PlacesOf(p, i);
    to[at.to] = Narrow<T>(Widen(to[at.to]) + Widen(from[at.from]));
  }
}

template <typename T>
__global__ void ScaleKernel(GpuPair p, Compute<T> factor) {
  auto* const to = static_cast<T*>(p.target);
  for (int64_t i = GlobalThread(); i < p.numel; i += GlobalThreads()) {
    const int64_t at = PlacesOf(p, i).to;
    to[at] = Narrow<T>(Widen(to[at]) * factor);
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchAddTo(const GpuCall& call, const GpuPair& pair, DType dtype) {
  return gpu::VisitFloat(dtype, [&](auto element) {
    return gpu::Launch(gpu::AddToKernel<decltype(element)>, gpu::GridFor(call, pair.numel),
                       gpu::kBlock, 0, call, pair);
  });
}

GpuError LaunchScale(const GpuCall& call, const GpuPair& pair, DType dtype, double factor) {
  return gpu::VisitFloat(dtype, [&](auto element) {
    return gpu::Launch(gpu::ScaleKernel<decltype(element)>, gpu::GridFor(call, pair.numel),
                       gpu::kBlock, 0, call, pair, factor);
  });
}

}  // namespace tally::internal
