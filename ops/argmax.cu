#include "tally/ops/line_parts.cuh"
#include "tally/ops/lines_gpu.h"
#include "tally/ops/order.cuh"

namespace tally::gpu {
namespace {

template <typename T>
struct ArgMaxFold : First {
  using C = Compute<T>;
  using Value = Ranked<C>;
  GpuLines l;
  const T* x;
  int64_t* out;

  __device__ Value Of(const PartPlace& at, LinePlace place, int columns) const {
    Value best;
    if (at.count > 0 && l.inner == 1) {
      const T* const p = x + at.line * l.n + at.first;
      ForPieces<T>(SplitRow(at.count, p), [&](int64_t i, auto few) {
        constexpr int kN = decltype(few)::value;
        const Vector<T, kN> v = LoadVector<T, kN>(p + i);
#pragma unroll
        for (int j = 0; j < kN; ++j) best = First()(best, Value{Widen(v.v[j]), at.first + i + j});
      });
    } else if (at.count > 0) {
      const T* const p = x + LineBegin(at.line, l.n, l.inner);
      for (int64_t i = at.first + place.lane; i < at.first + at.count; i += place.lanes) {
        best = First()(best, Value{Widen(p[i * l.inner]), i});
      }
    }
    return LinesReduce(best, First(), columns, Shared<Value>());
  }
  __device__ void Store(int64_t line, const Value& best) const { out[line] = best.index; }
};

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchArgMax(const GpuCall& call, const GpuLines& l, const void* x, void* out) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(l.dtype, [&](auto element) {
    using T = decltype(element);
    const LineGrid g = LinesFor(call, l.outer * l.inner, l.n, l.inner > 1);
    const ArgMaxFold<T> fold{{}, l, static_cast<const T*>(x), static_cast<int64_t*>(out)};
    return LaunchFoldLines<Ranked<Compute<T>>>(call, fold, g,
                                               PartsFor(l.outer * l.inner, g.columns, l.n));
  });
}

}  // namespace tally
