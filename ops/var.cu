#include "tally/ops/line_parts.cuh"
#include "tally/ops/lines_gpu.h"

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
struct VarFold : JoinMoments {
  using Value = Moments;
  using C = Compute<T>;
  GpuVar a;
  const T* x;
  T* y;
  bool rows;  // what is reduced lies together, and no columns side by side

  // fn(values, Few<kN>()) for the elements of a thread.
  template <class Fn>
  __device__ void ForElements(const PartPlace& at, LinePlace place, const Fn& fn) const {
    if (at.count == 0) return;
    const T* const from = x + OffsetIn(a.kept, at.line);
    if (rows) {
      const T* const p = from + at.first;
      ForPieces<T>(SplitRow(at.count, p), [&](int64_t i, auto few) {
        constexpr int kN = decltype(few)::value;
        const Vector<T, kN> v = LoadVector<T, kN>(p + i);
        C wide[kN];
#pragma unroll
        for (int j = 0; j < kN; ++j) wide[j] = Widen(v.v[j]);
        fn(wide, few);
      });
      return;
    }
    for (int64_t i = place.lane; i < at.count; i += place.lanes) {
      const C v = Widen(from[OffsetIn(a.reduced, at.first + i)]);
      fn(&v, Few<1>());
    }
  }
  __device__ Moments Of(const PartPlace& at, LinePlace place, int columns) const {
    double* const scratch = Shared<double>();
    const auto n = static_cast<double>(at.count);
    double total = 0, squares = 0;
    ForElements(at, place, [&](const C* v, auto few) {
      C part = 0;
#pragma unroll
      for (int j = 0; j < decltype(few)::value; ++j) part += v[j];
      total += static_cast<double>(part);
    });
    total = LinesReduce(total, Plus(), columns, scratch);
    const C mean = static_cast<C>(total / n);
    ForElements(at, place, [&](const C* v, auto few) {
      C part = 0;
#pragma unroll
      for (int j = 0; j < decltype(few)::value; ++j) part += (v[j] - mean) * (v[j] - mean);
      squares += static_cast<double>(part);
    });
    squares = LinesReduce(squares, Plus(), columns, scratch);
    return MomentsOf(n, total, static_cast<double>(mean), squares);
  }
  __device__ void Store(int64_t line, const Moments& m) const {
    y[line] = Narrow<T>(static_cast<C>(m.squares / static_cast<double>(a.divisor)));
  }
};

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchVar(const GpuCall& call, const GpuVar& a, const void* x, void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const bool neighbours = a.kept.rank > 0 && a.kept.strides[a.kept.rank - 1] == 1;
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    const LineGrid g = LinesFor(call, a.outputs, a.n, neighbours);
    const bool together = a.reduced.rank == 0 || (a.reduced.rank == 1 && a.reduced.strides[0] == 1);
    const VarFold<T> fold{
        {}, a, static_cast<const T*>(x), static_cast<T*>(y), together && g.columns == 1};
    return LaunchFoldLines<double>(call, fold, g, PartsFor(a.outputs, g.columns, a.n));
  });
}

}  // namespace tally
