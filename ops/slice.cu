#include "tally/ops/slice_gpu.h"

#include "tally/ops/copy.cuh"

namespace tally::gpu {
namespace {

using internal::GpuPlacing;

// A thread for each unit of y. Divisions of 32 bits where they do.
template <typename U, typename Index>
__device__ inline U Placed(const GpuPlacing& p, int64_t at) {
  auto i = static_cast<Index>(at);
  const auto inner = static_cast<Index>(p.inner), dim = static_cast<Index>(p.dim);
  const Index j = i % inner;
  i /= inner;
  const int64_t row = static_cast<int64_t>(i % dim) - p.begin;
  const auto outer = static_cast<int64_t>(i / dim);
  if (row < 0) return U{};
  int64_t b = row;
  if (p.step != 1) {
    b = row / p.step;
    if (b * p.step != row) return U{};
  }
  if (b >= p.count) return U{};
  return static_cast<const U*>(p.x)[(outer * p.count + b) * p.inner + static_cast<int64_t>(j)];
}

template <typename U>
__global__ void PlacingKernel(GpuPlacing p) {
  const int64_t n = p.outer * p.dim * p.inner;
  auto* const y = static_cast<U*>(p.y);
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) {
    y[i] = n <= INT32_MAX ? Placed<U, uint32_t>(p, i) : Placed<U, int64_t>(p, i);
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchPlacing(const GpuCall& call, const GpuPlacing& placing) {
  GpuPlacing p = placing;
  if (p.step == 1) {  // rows of neighbours are one row
    p.dim *= p.inner;
    p.begin *= p.inner;
    p.count *= p.inner;
    p.inner = 1;
  }
  while (p.item < 16 && gpu::IsEven(p.item, p.x) && gpu::IsEven(p.item, p.y)) {
    if (p.inner > 1) {
      if (p.inner % 2 != 0) break;
      p.inner /= 2;
    } else {
      if (p.step != 1 || p.dim % 2 != 0 || p.begin % 2 != 0 || p.count % 2 != 0) break;
      p.dim /= 2;
      p.begin /= 2;
      p.count /= 2;
    }
    p.item *= 2;
  }
  return gpu::VisitUnit(p.item, [&](auto unit) {
    return gpu::Launch(gpu::PlacingKernel<decltype(unit)>,
                       gpu::GridFor(call, p.outer * p.dim * p.inner), gpu::kBlock, 0, call, p);
  });
}

}  // namespace tally::internal
