// Softmax, log-softmax and logsumexp: one pass for the greatest element and the sum, one for the
// results.
#include "tally/ops/line_parts.cuh"
#include "tally/ops/softmax_gpu.h"

namespace tally::gpu {
namespace {

// e^(v - top) / sum, or v - top - log sum.
template <typename C>
struct SoftmaxOf {
  C top, last;
  bool log;

  __device__ SoftmaxOf(const MaxSum<C>& m, bool log_of)
      : top(m.top),
        last(log_of ? LogOf(static_cast<C>(m.sum)) : static_cast<C>(1 / m.sum)),
        log(log_of) {}
  __device__ C operator()(C v) const { return log ? v - top - last : ExpOf(v - top) * last; }
};

template <typename T>
__global__ void __launch_bounds__(kMaxRowBlock)
    SoftmaxRowsKernel(GpuSoftmax s, const T* x, T* y, bool keep) {
  using C = Compute<T>;
  const C scale = static_cast<C>(s.scale);
  for (int64_t r = blockIdx.x; r < s.outer; r += gridDim.x) {
    const KeyRange seen = s.Seen(r);
    const int64_t first = r * s.n + seen.begin, n = seen.end - seen.begin;
    const T* const from = x + first;
    T* const to = y + first;
    FillRow(y + r * s.n, seen.begin, Narrow<T>(C(0)));
    FillRow(to + n, s.n - seen.end, Narrow<T>(C(0)));
    const RowSplit row = SplitRow(n, from, to);
    T* const kept = KeptRow(s.n, 0, from);
    MaxSum<C> m;
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      const Vector<T, kN> v = LoadVector<T, kN>(from + i);
      if (keep) StoreVector<T, kN>(kept + i, v);
      C scaled[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) scaled[j] = Widen(v.v[j]) * scale;
      m.template Add<kN>(scaled);
    });
    m.Combine(1, Shared<double>());
    const SoftmaxOf<C> result(m, s.log);
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      Vector<T, kN> v = LoadVector<T, kN>((keep ? kept : from) + i);
#pragma unroll
      for (int j = 0; j < kN; ++j) v.v[j] = Narrow<T>(result(Widen(v.v[j]) * scale));
      StoreVector<T, kN>(to + i, v);
    });
    __syncthreads();  // before the next row is kept
  }
}

template <typename T>
__device__ inline MaxSum<Compute<T>> MaxSumOfLine(const T* x, int64_t n, int64_t inner,
                                                  LinePlace place, Compute<T> scale) {
  MaxSum<Compute<T>> m;
  for (int64_t i = place.lane; i < n; i += place.lanes) {
    const Compute<T> v = Widen(x[i * inner]) * scale;
    m.template Add<1>(&v);
  }
  return m;
}

template <typename T>
__global__ void SoftmaxLinesKernel(GpuSoftmax s, const T* x, T* y, int columns) {
  using C = Compute<T>;
  const C scale = static_cast<C>(s.scale);
  const LinePlace place = PlaceInLines(columns);
  const int64_t lines = s.outer * s.inner;
  for (int64_t tile = blockIdx.x; tile * columns < lines; tile += gridDim.x) {
    const int64_t line = tile * columns + place.column;
    const int64_t begin = LineBegin(line, s.n, s.inner), n = line < lines ? s.n : 0;
    MaxSum<C> m = MaxSumOfLine(x + begin, n, s.inner, place, scale);
    m.Combine(columns, Shared<double>());
    const SoftmaxOf<C> result(m, s.log);
    for (int64_t i = place.lane; i < n; i += place.lanes) {
      const int64_t at = begin + i * s.inner;
      y[at] = Narrow<T>(result(Widen(x[at]) * scale));
    }
  }
}

// softmax: sum of y dy, dx = (dy - sum) y scale. log_softmax: sum of dy, dx = dy - e^y sum.
template <typename C>
__device__ inline C GradTerm(bool log, C y, C dy) {
  return log ? dy : y * dy;
}
template <typename C>
__device__ inline C GradResult(bool log, C y, C dy, C sum, C scale) {
  return log ? dy - ExpOf(y) * sum : (dy - sum) * y * scale;
}

template <typename T>
__global__ void __launch_bounds__(kMaxRowBlock)
    SoftmaxGradRowsKernel(GpuSoftmax s, const T* y, const T* dy, T* dx, bool keep) {
  using C = Compute<T>;
  const C scale = static_cast<C>(s.scale);
  for (int64_t r = blockIdx.x; r < s.outer; r += gridDim.x) {
    const KeyRange seen = s.Seen(r);
    const int64_t first = r * s.n + seen.begin, n = seen.end - seen.begin;
    const T *const from = y + first, *const dfrom = dy + first;
    T* const to = dx + first;
    FillRow(dx + r * s.n, seen.begin, Narrow<T>(C(0)));
    FillRow(to + n, s.n - seen.end, Narrow<T>(C(0)));
    const RowSplit row = SplitRow(n, from, dfrom, to);
    T *const kept = KeptRow(s.n, 0, from), *const dkept = KeptRow(s.n, 1, from);
    double total = 0;
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      const Vector<T, kN> v = LoadVector<T, kN>(from + i), dv = LoadVector<T, kN>(dfrom + i);
      if (keep) {
        StoreVector<T, kN>(kept + i, v);
        StoreVector<T, kN>(dkept + i, dv);
      }
      C part = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) part += GradTerm(s.log, Widen(v.v[j]), Widen(dv.v[j]));
      total += static_cast<double>(part);
    });
    const C sum = static_cast<C>(LinesReduce(total, Plus(), 1, Shared<double>()));
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      const Vector<T, kN> v = LoadVector<T, kN>((keep ? kept : from) + i);
      Vector<T, kN> dv = LoadVector<T, kN>((keep ? dkept : dfrom) + i);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        dv.v[j] = Narrow<T>(GradResult(s.log, Widen(v.v[j]), Widen(dv.v[j]), sum, scale));
      }
      StoreVector<T, kN>(to + i, dv);
    });
    __syncthreads();  // before the next row is kept
  }
}

template <typename T>
__global__ void SoftmaxGradLinesKernel(GpuSoftmax s, const T* y, const T* dy, T* dx, int columns) {
  using C = Compute<T>;
  const C scale = static_cast<C>(s.scale);
  const LinePlace place = PlaceInLines(columns);
  const int64_t lines = s.outer * s.inner;
  for (int64_t tile = blockIdx.x; tile * columns < lines; tile += gridDim.x) {
    const int64_t line = tile * columns + place.column;
    const int64_t begin = LineBegin(line, s.n, s.inner), n = line < lines ? s.n : 0;
    double total = 0;
    for (int64_t i = place.lane; i < n; i += place.lanes) {
      const int64_t at = begin + i * s.inner;
      total += static_cast<double>(GradTerm(s.log, Widen(y[at]), Widen(dy[at])));
    }
    const C sum = static_cast<C>(LinesReduce(total, Plus(), columns, Shared<double>()));
    for (int64_t i = place.lane; i < n; i += place.lanes) {
      const int64_t at = begin + i * s.inner;
      dx[at] = Narrow<T>(GradResult(s.log, Widen(y[at]), Widen(dy[at]), sum, scale));
    }
  }
}

// ---- logsumexp

template <typename T>
struct LogSumExpFold {
  using C = Compute<T>;
  using Value = MaxSum<C>;
  LogSumExpRows a;

  __device__ Value Of(const PartPlace& at, LinePlace place, int columns) const {
    const T* const x = static_cast<const T*>(a.x);
    Value m;
    if (a.inner == 1) {
      const T* const p = x + at.line * a.n + at.first;
      ForPieces<T>(SplitRow(at.count, p), [&](int64_t i, auto few) {
        constexpr int kN = decltype(few)::value;
        const Vector<T, kN> v = LoadVector<T, kN>(p + i);
        C wide[kN];
#pragma unroll
        for (int j = 0; j < kN; ++j) wide[j] = Widen(v.v[j]);
        m.template Add<kN>(wide);
      });
    } else {
      const T* const p = x + LineBegin(at.line, a.n, a.inner) + at.first * a.inner;
      m = MaxSumOfLine(p, at.count, a.inner, place, C(1));
    }
    m.Combine(columns, Shared<double>());
    return m;
  }
  __device__ Value operator()(const Value& m, const Value& other) const { return m.With(other); }
  __device__ void Store(int64_t line, const Value& m) const {
    static_cast<T*>(a.y)[line] = Narrow<T>(m.LogSum());
  }
};

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchSoftmax(const GpuCall& call, const GpuSoftmax& s, const void* x, void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(s.dtype, [&](auto element) {
    using T = decltype(element);
    const T* const from = static_cast<const T*>(x);
    T* const to = static_cast<T*>(y);
    if (s.inner == 1) {
      return Launch(SoftmaxRowsKernel<T>, GridForRows(call, s.outer), RowBlock<T>(s.n),
                    RowShared<T>(s.n, 1), call, s, from, to, CanKeep<T>(s.n, 1));
    }
    const LineGrid g = LinesFor(call, s.outer * s.inner, s.n, s.inner > 1);
    return Launch(SoftmaxLinesKernel<T>, g.grid, g.block, LineShared<double>(g), call, s, from, to,
                  g.columns);
  });
}

GpuError LaunchSoftmaxGrad(const GpuCall& call, const GpuSoftmax& s, const void* y, const void* dy,
                           void* dx) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(s.dtype, [&](auto element) {
    using T = decltype(element);
    const T *const from = static_cast<const T*>(y), *const dfrom = static_cast<const T*>(dy);
    T* const to = static_cast<T*>(dx);
    if (s.inner == 1) {
      return Launch(SoftmaxGradRowsKernel<T>, GridForRows(call, s.outer), RowBlock<T>(s.n),
                    RowShared<T>(s.n, 2), call, s, from, dfrom, to, CanKeep<T>(s.n, 2));
    }
    const LineGrid g = LinesFor(call, s.outer * s.inner, s.n, s.inner > 1);
    return Launch(SoftmaxGradLinesKernel<T>, g.grid, g.block, LineShared<double>(g), call, s, from,
                  dfrom, to, g.columns);
  });
}

GpuError LaunchLogSumExp(const GpuCall& call, const LogSumExpRows& a) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    LineGrid g = LinesFor(call, a.outer * a.inner, a.n, a.inner > 1);
    const LineParts p = PartsFor(a.outer * a.inner, g.columns, a.n);
    if (a.inner == 1 && p.parts == 1) g.block = RowBlock<T>(a.n);
    return LaunchFoldLines<double>(call, LogSumExpFold<T>{a}, g, p);
  });
}

}  // namespace tally
