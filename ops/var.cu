#include "tally/ops/lines_gpu.h"
#include "tally/ops/rows.cuh"

namespace tally::gpu {
namespace {

template <typename Index>
__device__ inline int64_t Unravel(const GpuVar::Space& s, Index i) {
  int64_t at = 0;
  for (int d = s.rank - 1; d > 0; --d) {
    const auto dim = static_cast<Index>(s.dims[d]);
    at += static_cast<int64_t>(i % dim) * s.strides[d];
    i /= dim;
  }
  return s.rank == 0 ? 0 : at + static_cast<int64_t>(i) * s.strides[0];
}
// Where element `i` of the space lies.
__device__ inline int64_t OffsetIn(const GpuVar::Space& s, int64_t i) {
  return i <= INT32_MAX ? Unravel(s, static_cast<uint32_t>(i)) : Unravel(s, i);
}

template <typename T>
__global__ void VarKernel(GpuVar a, const T* x, T* y, int columns) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  const LinePlace place = PlaceInLines(columns);
  for (int64_t tile = blockIdx.x; tile * columns < a.outputs; tile += gridDim.x) {
    const int64_t output = tile * columns + place.column;
    const int64_t n = output < a.outputs ? a.n : 0;
    const T* const from = x + (n > 0 ? OffsetIn(a.kept, output) : 0);
    double total = 0;
    for (int64_t i = place.lane; i < n; i += place.lanes) {
      total += static_cast<double>(Widen(from[OffsetIn(a.reduced, i)]));
    }
    const C mean =
        static_cast<C>(LinesReduce(total, Plus(), columns, scratch) / static_cast<double>(a.n));
    total = 0;
    for (int64_t i = place.lane; i < n; i += place.lanes) {
      const C centered = Widen(from[OffsetIn(a.reduced, i)]) - mean;
      total += static_cast<double>(centered * centered);
    }
    total = LinesReduce(total, Plus(), columns, scratch);
    if (place.lane == 0 && output < a.outputs) {
      y[output] = Narrow<T>(static_cast<C>(total / static_cast<double>(a.divisor)));
    }
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchVar(const GpuCall& call, const GpuVar& a, const void* x, void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const bool neighbours = a.kept.rank > 0 && a.kept.strides[a.kept.rank - 1] == 1;
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    const LineGrid g = LinesFor(call, a.outputs, a.n, neighbours);
    return Launch(VarKernel<T>, g.grid, g.block, LineShared<double>(g), call, a,
                  static_cast<const T*>(x), static_cast<T*>(y), g.columns);
  });
}

}  // namespace tally
