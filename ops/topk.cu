// The first k of each row: found one after the other by the block of a row, or, where that is less
// work, by counting for each element how many come before it.
#include "tally/ops/lines_gpu.h"
#include "tally/ops/order.cuh"

namespace tally::gpu {
namespace {

// k times the first of those that come after the last one found.
template <typename T>
__global__ void SelectTopKernel(GpuLines l, int64_t k, const T* x, T* values, int64_t* indices) {
  using C = Compute<T>;
  for (int64_t r = blockIdx.x; r < l.outer; r += gridDim.x) {
    const T* const row = x + r * l.n;
    Ranked<C> last;
    for (int64_t j = 0; j < k; ++j) {
      Ranked<C> best;
      for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x) {
        const Ranked<C> at{Widen(row[i]), i};
        if (j == 0 || Before(last, at)) best = First()(best, at);
      }
      last = LinesReduce(best, First(), 1, Shared<Ranked<C>>());
      if (threadIdx.x == 0) {
        values[r * k + j] = row[last.index];
        indices[r * k + j] = last.index;
      }
    }
  }
}

template <typename T>
__global__ void RankTopKernel(GpuLines l, int64_t k, const T* x, T* values, int64_t* indices) {
  using C = Compute<T>;
  const int64_t count = l.outer * l.n;
  for (int64_t task = GlobalThread(); task < count; task += GlobalThreads()) {
    const int64_t r = task / l.n;
    const T* const row = x + r * l.n;
    const Ranked<C> at{Widen(x[task]), task - r * l.n};
    int64_t rank = 0;
    for (int64_t i = 0; i < l.n; ++i) rank += Before(Ranked<C>{Widen(row[i]), i}, at) ? 1 : 0;
    if (rank >= k) continue;
    values[r * k + rank] = x[task];
    indices[r * k + rank] = at.index;
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchTopK(const GpuCall& call, const GpuLines& l, int64_t k, const void* x, void* values,
                    void* indices) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const int block = BlockFor(l.n);
  // Steps of a thread for a row, when a block's threads share it; a reduction counts as 256.
  const double each = static_cast<double>(l.n) / block;
  const bool ranks = static_cast<double>(l.n) * each < static_cast<double>(k) * (each + 256);
  return VisitFloat(l.dtype, [&](auto element) {
    using T = decltype(element);
    const T* const from = static_cast<const T*>(x);
    T* const to = static_cast<T*>(values);
    int64_t* const at = static_cast<int64_t*>(indices);
    if (ranks) {
      return Launch(RankTopKernel<T>, GridFor(call, l.outer * l.n), kBlock, 0, call, l, k, from, to,
                    at);
    }
    return Launch(SelectTopKernel<T>, GridForRows(call, l.outer), block,
                  ReduceBytes<Ranked<Compute<T>>>(block), call, l, k, from, to, at);
  });
}

}  // namespace tally
