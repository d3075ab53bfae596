// Running sums and products along lines. A block takes a chunk of its lines at a time, some
// neighbours along the line to a thread, and carries what came before into the next. Of a line in
// parts the sums of the parts are made first, and summed up.
#include <type_traits>

#include "tally/ops/line_parts.cuh"
#include "tally/ops/lines_gpu.h"

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

// The sum of each part of each line.
template <typename T>
__global__ void SumPartsKernel(GpuLines l, bool reverse, LineParts p, const T* x,
                               RunningSum<T>* sums) {
  using R = RunningSum<T>;
  const LinePlace place = PlaceInLines(p.columns);
  for (int64_t piece = blockIdx.x; piece < p.pieces(); piece += gridDim.x) {
    const PartPlace at = PartOf(p, piece, place);
    const int64_t first = reverse ? l.n - at.first - at.count : at.first;
    const T* const from = x + LineBegin(at.line, l.n, l.inner) + first * l.inner;
    R sum = 0;
    if (at.count > 0 && l.inner == 1) {
      ForPieces<T>(SplitRow(at.count, from), [&](int64_t i, auto few) {
        constexpr int kN = decltype(few)::value;
        const Vector<T, kN> v = LoadVector<T, kN>(from + i);
        R part = 0;
#pragma unroll
        for (int j = 0; j < kN; ++j) part += static_cast<R>(Widen(v.v[j]));
        sum += part;
      });
    } else {
      for (int64_t i = place.lane; i < at.count; i += place.lanes) {
        sum += static_cast<R>(Widen(from[i * l.inner]));
      }
    }
    sum = LinesReduce(sum, Plus(), p.columns, Shared<R>());
    if (place.lane == 0 && at.line < p.lines) sums[at.line * p.parts + at.part] = sum;
  }
}

// What comes before each part: a block for each line, in place.
template <typename R>
__global__ void ScanPartsKernel(LineParts p, R* sums) {
  const LinePlace place = PlaceInLines(1);
  for (int64_t line = blockIdx.x; line < p.lines; line += gridDim.x) {
    R* const of_line = sums + line * p.parts;
    R carry = 0;
    for (int64_t base = 0; base < p.parts; base += int64_t{blockDim.x} * kRun) {
      const int64_t first = base + int64_t{threadIdx.x} * kRun;
      R before[kRun], sum = 0, all;
      for (int j = 0; j < kRun; ++j) {
        before[j] = sum;
        if (first + j < p.parts) sum += of_line[first + j];
      }
      const R lower = carry + ScanLanes(sum, R(0), Plus(), place, 1, Shared<R>(), &all);
      for (int j = 0; j < kRun; ++j) {
        if (first + j < p.parts) of_line[first + j] = lower + before[j];
      }
      carry += all;
    }
  }
}

// `before`: what comes before each part; null where a line is one.
template <typename T>
__global__ void CumsumKernel(GpuLines l, bool reverse, LineParts p, const T* x,
                             const RunningSum<T>* before, T* y) {
  using R = RunningSum<T>;
  const LinePlace place = PlaceInLines(p.columns);
  const int64_t chunk = int64_t{place.lanes} * kRun;
  for (int64_t piece = blockIdx.x; piece < p.pieces(); piece += gridDim.x) {
    const PartPlace part = PartOf(p, piece, place);
    const int64_t begin = LineBegin(part.line, l.n, l.inner), end = part.first + part.count;
    const int64_t left = p.n - part.first, most = left < p.length ? left : p.length;
    R carry = before == nullptr || part.count == 0 ? R(0) : before[part.line * p.parts + part.part];
    for (int64_t base = part.first; base < part.first + most; base += chunk) {
      const int64_t first = base + int64_t{place.lane} * kRun;
      R sums[kRun], sum = 0, all;
      for (int j = 0; j < kRun; ++j) {
        const int64_t i = first + j, at = begin + (reverse ? l.n - 1 - i : i) * l.inner;
        if (i < end) sum += static_cast<R>(Widen(x[at]));
        sums[j] = sum;
      }
      const R lower = carry + ScanLanes(sum, R(0), Plus(), place, p.columns, Shared<R>(), &all);
      for (int j = 0; j < kRun; ++j) {
        const int64_t i = first + j, at = begin + (reverse ? l.n - 1 - i : i) * l.inner;
        if (i < end) y[at] = Narrow<T>(static_cast<Compute<T>>(lower + sums[j]));
      }
      carry += all;
    }
  }
}
template <typename T>
GpuError LaunchCumsumOf(const GpuCall& call, const GpuLines& l, bool reverse, const T* x, T* y) {
  using R = RunningSum<T>;
  const LineGrid g = LinesFor(call, l.outer * l.inner, (l.n + kRun - 1) / kRun, l.inner > 1);
  const LineParts p = PartsFor(l.outer * l.inner, g.columns, l.n);
  const unsigned grid = GridForRows(call, p.pieces());
  R* const sums = p.parts == 1 ? nullptr : static_cast<R*>(call.partials);
  if (sums != nullptr) {
    const GpuError summed =
        Launch(SumPartsKernel<T>, grid, g.block, LineShared<R>(g), call, l, reverse, p, x, sums);
    if (summed != cudaSuccess) return summed;
    const GpuError scanned = Launch(ScanPartsKernel<R>, GridForRows(call, p.lines), kBlock,
                                    sizeof(R) * 2 * kBlock, call, p, sums);
    if (scanned != cudaSuccess) return scanned;
  }
  return Launch(CumsumKernel<T>, grid, g.block, ScanShared<R>(g), call, l, reverse, p, x, sums, y);
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
    return LaunchCumsumOf(call, l, reverse, static_cast<const T*>(x), static_cast<T*>(y));
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
