// Running sums and products along lines. A block takes a chunk of its lines at a time, some
// neighbours along the line to a thread, and carries what came before into the next.
#include <type_traits>

#include "tally/ops/lines_gpu.h"
#include "tally/ops/rows.cuh"

namespace tally::gpu {
namespace {

inline constexpr int kRun = 4;  // neighbours of a thread

struct Times {
  template <typename C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};

// What the threads of lower lanes in the column have together, and in `all` what all have.
// `scratch` holds two values for each thread.
template <typename R, class Op>
__device__ inline R ScanLanes(R value, R identity, Op op, LinePlace place, int columns, R* scratch,
                              R* all) {
  const int thread = static_cast<int>(threadIdx.x);
  R *from = scratch, *to = scratch + blockDim.x;
  from[thread] = value;
  __syncthreads();
  for (int step = 1; step < place.lanes; step *= 2) {
    R combined = from[thread];
    if (place.lane >= step) combined = op(from[thread - step * columns], combined);
    to[thread] = combined;
    __syncthreads();
    R* const swap = from;
    from = to;
    to = swap;
  }
  *all = from[(place.lanes - 1) * columns + place.column];
  const R before = place.lane == 0 ? identity : from[thread - columns];
  __syncthreads();
  return before;
}
template <typename R>
size_t ScanShared(const LineGrid& g) {
  return sizeof(R) * static_cast<size_t>(2 * g.block);
}

// What a running sum of T is kept in.
template <typename T>
using RunningSum = std::conditional_t<std::is_same_v<T, float>, double, Compute<T>>;

template <typename T>
__global__ void CumsumKernel(GpuLines l, bool reverse, const T* x, T* y, int columns) {
  using R = RunningSum<T>;
  const LinePlace place = PlaceInLines(columns);
  const int64_t lines = l.outer * l.inner, chunk = int64_t{place.lanes} * kRun;
  for (int64_t tile = blockIdx.x; tile * columns < lines; tile += gridDim.x) {
    const int64_t line = tile * columns + place.column;
    const int64_t begin = LineBegin(line, l.n, l.inner), n = line < lines ? l.n : 0;
    R carry = 0;
    for (int64_t base = 0; base < l.n; base += chunk) {
      const int64_t first = base + int64_t{place.lane} * kRun;
      R sums[kRun], sum = 0, all;
      for (int j = 0; j < kRun; ++j) {
        const int64_t i = first + j, at = begin + (reverse ? l.n - 1 - i : i) * l.inner;
        if (i < n) sum += static_cast<R>(Widen(x[at]));
        sums[j] = sum;
      }
      const R before = carry + ScanLanes(sum, R(0), Plus(), place, columns, Shared<R>(), &all);
      for (int j = 0; j < kRun; ++j) {
        const int64_t i = first + j, at = begin + (reverse ? l.n - 1 - i : i) * l.inner;
        if (i < n) y[at] = Narrow<T>(static_cast<Compute<T>>(before + sums[j]));
      }
      carry += all;
    }
  }
}

// dx_i = (x_0 ... x_{i-1}) (x_{i+1} ... x_{n-1} dy): the first product forwards into `left`, which
// may be dx, then the second backwards.
template <typename T>
__global__ void ProdGradKernel(GpuLines l, const T* x, const T* dy, Compute<T>* left, T* dx,
                               int columns) {
  using C = Compute<T>;
  const LinePlace place = PlaceInLines(columns);
  const int64_t lines = l.outer * l.inner, chunk = int64_t{place.lanes} * kRun;
  for (int64_t tile = blockIdx.x; tile * columns < lines; tile += gridDim.x) {
    const int64_t line = tile * columns + place.column;
    const int64_t begin = LineBegin(line, l.n, l.inner), n = line < lines ? l.n : 0;
    for (int pass = 0; pass < 2; ++pass) {
      const bool back = pass == 1;
      C carry = back && n > 0 ? Widen(dy[line]) : C(1);
      for (int64_t base = 0; base < l.n; base += chunk) {
        const int64_t first = base + int64_t{place.lane} * kRun;
        C products[kRun], product = 1, all;  // of those before each within the run
        for (int j = 0; j < kRun; ++j) {
          const int64_t i = first + j, at = begin + (back ? l.n - 1 - i : i) * l.inner;
          products[j] = product;
          if (i < n) product *= Widen(x[at]);
        }
        const C before =
            carry * ScanLanes(product, C(1), Times(), place, columns, Shared<C>(), &all);
        for (int j = 0; j < kRun; ++j) {
          const int64_t i = first + j, at = begin + (back ? l.n - 1 - i : i) * l.inner;
          if (i >= n) continue;
          if (back) {
            dx[at] = Narrow<T>(left[at] * (before * products[j]));
          } else {
            left[at] = before * products[j];
          }
        }
        carry *= all;
      }
      __syncthreads();  // what one thread wrote to `left` another reads
    }
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchCumsum(const GpuCall& call, const GpuLines& l, bool reverse, const void* x,
                      void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(l.dtype, [&](auto element) {
    using T = decltype(element);
    const LineGrid g = LinesFor(call, l.outer * l.inner, (l.n + kRun - 1) / kRun, l.inner > 1);
    return Launch(CumsumKernel<T>, g.grid, g.block, ScanShared<RunningSum<T>>(g), call, l, reverse,
                  static_cast<const T*>(x), static_cast<T*>(y), g.columns);
  });
}

GpuError LaunchProdGrad(const GpuCall& call, const GpuLines& l, const void* x, const void* dy,
                        void* left, void* dx) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(l.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    const LineGrid g = LinesFor(call, l.outer * l.inner, (l.n + kRun - 1) / kRun, l.inner > 1);
    return Launch(ProdGradKernel<T>, g.grid, g.block, ScanShared<C>(g), call, l,
                  static_cast<const T*>(x), static_cast<const T*>(dy), static_cast<C*>(left),
                  static_cast<T*>(dx), g.columns);
  });
}

}  // namespace tally
