#include "tally/ops/lines_gpu.h"
#include "tally/ops/order.cuh"

namespace tally::gpu {
namespace {

template <typename T>
__global__ void ArgMaxKernel(GpuLines l, const T* x, int64_t* out, int columns) {
  using C = Compute<T>;
  const LinePlace place = PlaceInLines(columns);
  const int64_t lines = l.outer * l.inner;
  for (int64_t tile = blockIdx.x; tile * columns < lines; tile += gridDim.x) {
    const int64_t line = tile * columns + place.column;
    const int64_t begin = LineBegin(line, l.n, l.inner), n = line < lines ? l.n : 0;
    Ranked<C> best;
    for (int64_t i = place.lane; i < n; i += place.lanes) {
      best = First()(best, Ranked<C>{Widen(x[begin + i * l.inner]), i});
    }
    best = LinesReduce(best, First(), columns, Shared<Ranked<C>>());
    if (place.lane == 0 && line < lines) out[line] = best.index;
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchArgMax(const GpuCall& call, const GpuLines& l, const void* x, void* out) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(l.dtype, [&](auto element) {
    using T = decltype(element);
    const LineGrid g = LinesFor(call, l.outer * l.inner, l.n, l.inner > 1);
    return Launch(ArgMaxKernel<T>, g.grid, g.block, LineShared<Ranked<Compute<T>>>(g), call, l,
                  static_cast<const T*>(x), static_cast<int64_t*>(out), g.columns);
  });
}

}  // namespace tally
