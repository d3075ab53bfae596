// Steps of reductions: blocks of neighbours in a row by some lanes of a warp each, blocks down
// columns by a thread each.
#include <limits>

#include "tally/ops/fold_step.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {
namespace {

template <FoldKind kKind>
struct Fold {
  template <typename C>
  __device__ C operator()(C a, C b) const {
    if constexpr (kKind == FoldKind::kSum) {
      return a + b;
    } else if constexpr (kKind == FoldKind::kProd) {
      return a * b;
    } else if constexpr (kKind == FoldKind::kMax) {
      return a > b || a != a ? a : b;
    } else {
      return a < b || a != a ? a : b;
    }
  }
  template <typename C>
  __device__ static constexpr C Identity() {
    if constexpr (kKind == FoldKind::kSum || kKind == FoldKind::kProd) {
      return kKind == FoldKind::kSum ? C(0) : C(1);
    } else {
      constexpr C kInfinity = std::numeric_limits<C>::infinity();
      return kKind == FoldKind::kMax ? -kInfinity : kInfinity;
    }
  }
};

// Where results go. One element in many of x: its dtype is told at run time.
struct FoldOut {
  DType dtype;
  void* y;
  double divisor;

  template <typename C>
  __device__ void Store(int64_t i, C value) const {
    if (divisor != 1) value = static_cast<C>(value / static_cast<C>(divisor));
    switch (dtype) {
      case DType::kF64:
        static_cast<double*>(y)[i] = static_cast<double>(value);
        return;
      case DType::kF32:
        static_cast<float*>(y)[i] = static_cast<float>(value);
        return;
      case DType::kBF16:
        static_cast<BF16*>(y)[i] = BF16(static_cast<float>(value));
        return;
      default:
        static_cast<F16*>(y)[i] = F16(static_cast<float>(value));
        return;
    }
  }
};

// Neighbours first, so that long chains of additions become short ones.
template <class F, typename T, int kN>
__device__ inline Compute<T> FoldVector(const Vector<T, kN>& x) {
  Compute<T> v[kN];
#pragma unroll
  for (int j = 0; j < kN; ++j) v[j] = Widen(x.v[j]);
#pragma unroll
  for (int half = kN / 2; half > 0; half /= 2) {
#pragma unroll
    for (int j = 0; j < half; ++j) v[j] = F()(v[j], v[j + half]);
  }
  return v[0];
}

// inner = 1. A task is a block of a row, for `lanes` threads of a warp (a power of two). All lanes
// of a warp go through the same number of tasks.
template <class F, typename T>
__global__ void FoldRunsKernel(FoldStep s, const T* x, FoldOut out, int lanes, bool vectors) {
  using C = Compute<T>;
  constexpr int kN = kVector<T>;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t tasks = s.outer * s.blocks;
  const int64_t count = (tasks + kWarp - 1) / kWarp * kWarp;  // whole warps, whatever `lanes` is
  for (int64_t task = GlobalThread() / lanes; task < count; task += GlobalThreads() / lanes) {
    C total = F::template Identity<C>();
    if (task < tasks) {
      const int64_t first = task % s.blocks * s.block;
      const T* const p = x + task / s.blocks * s.n + first;
      const int n = static_cast<int>(s.n - first < s.block ? s.n - first : s.block);
      const int whole = vectors ? n / kN * kN : 0;
      for (int i = lane * kN; i < whole; i += lanes * kN) {
        total = F()(total, FoldVector<F, T, kN>(LoadVector(p + i)));
      }
      C rest = F::template Identity<C>();
      int i = whole + lane;
      for (; i + lanes < n; i += 2 * lanes) {
        total = F()(total, Widen(p[i]));
        rest = F()(rest, Widen(p[i + lanes]));
      }
      if (i < n) total = F()(total, Widen(p[i]));
      total = F()(total, rest);
    }
    for (int step = lanes / 2; step > 0; step /= 2) {
      total = F()(total, __shfl_xor_sync(0xffffffffu, total, step));
    }
    if (lane == 0 && task < tasks) out.Store(task, total);
  }
}

// A task is kN columns of a block.
template <class F, typename T, int kN>
__global__ void FoldColumnsKernel(FoldStep s, const T* x, FoldOut out) {
  using C = Compute<T>;
  const int64_t pieces = s.inner / kN, tasks = s.outer * s.blocks * pieces;
  for (int64_t task = GlobalThread(); task < tasks; task += GlobalThreads()) {
    const int64_t block = task / pieces, column = task % pieces * kN;
    const int64_t first = block % s.blocks * s.block;
    const int64_t left = s.n - first;
    const int rows = static_cast<int>(left < s.block ? left : s.block);
    const T* p = x + (block / s.blocks * s.n + first) * s.inner + column;
    C total[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) total[j] = F::template Identity<C>();
    int r = 0;
    for (; r + 4 <= rows; r += 4, p += 4 * s.inner) {
      Vector<T, kN> v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = LoadVector<T, kN>(p + k * s.inner);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const C four =
            F()(F()(Widen(v[0].v[j]), Widen(v[1].v[j])), F()(Widen(v[2].v[j]), Widen(v[3].v[j])));
        total[j] = F()(total[j], four);
      }
    }
    for (; r < rows; ++r, p += s.inner) {
      const Vector<T, kN> v = LoadVector<T, kN>(p);
#pragma unroll
      for (int j = 0; j < kN; ++j) total[j] = F()(total[j], Widen(v.v[j]));
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) out.Store(block * s.inner + column + j, total[j]);
  }
}

template <class F, typename T>
GpuError LaunchStep(const GpuCall& call, const FoldStep& s, const T* x, const FoldOut& out) {
  constexpr int kN = kVector<T>;
  if (s.inner > 1) {
    if (CanVectorize(x, s.inner)) {
      return Launch(FoldColumnsKernel<F, T, kN>, GridFor(call, s.numel_out() / kN), kBlock, 0, call,
                    s, x, out);
    }
    return Launch(FoldColumnsKernel<F, T, 1>, GridFor(call, s.numel_out()), kBlock, 0, call, s, x,
                  out);
  }
  const int64_t most = s.n < s.block ? s.n : s.block;
  const bool vectors = CanVectorize(x, s.n) && CanVectorize(x, s.block);
  int lanes = 1;
  while (lanes < kWarp && lanes * (vectors ? kN : 1) < most) lanes *= 2;
  const int64_t tasks = (s.numel_out() + kWarp - 1) / kWarp * kWarp;
  return Launch(FoldRunsKernel<F, T>, GridFor(call, tasks * lanes), kBlock, 0, call, s, x, out,
                lanes, vectors);
}

template <FoldKind kKind>
GpuError LaunchKind(const GpuCall& call, const FoldStep& s, DType from, const void* x,
                    const FoldOut& out) {
  return VisitFloat(from, [&](auto element) {
    using T = decltype(element);
    return LaunchStep<Fold<kKind>>(call, s, static_cast<const T*>(x), out);
  });
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchFold(const GpuCall& call, FoldKind kind, const FoldStep& step, DType from,
                    const void* x, DType to, void* y, double divisor) {
  const gpu::FoldOut out{to, y, divisor};
  switch (kind) {
    case FoldKind::kSum:
      return gpu::LaunchKind<FoldKind::kSum>(call, step, from, x, out);
    case FoldKind::kMax:
      return gpu::LaunchKind<FoldKind::kMax>(call, step, from, x, out);
    case FoldKind::kMin:
      return gpu::LaunchKind<FoldKind::kMin>(call, step, from, x, out);
    case FoldKind::kProd:
      return gpu::LaunchKind<FoldKind::kProd>(call, step, from, x, out);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tally
