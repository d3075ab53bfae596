// Layer and RMS normalisation: a block for each row, which it keeps between its passes.
#include "tally/ops/norm_gpu.h"
#include "tally/ops/rows.cuh"

namespace tally::gpu {
namespace {

// What h is multiplied by at position i: w, and without centring offset + w.
template <typename T>
struct NormScale {
  const T* weight;
  Compute<T> offset;

  template <int kN>
  __device__ void Multiply(int64_t i, Compute<T>* h) const {
    if (weight == nullptr) return;
    const Vector<T, kN> w = LoadVector<T, kN>(weight + i);
#pragma unroll
    for (int j = 0; j < kN; ++j) h[j] *= Widen(w.v[j]) + offset;
  }
};
template <typename T>
__device__ inline NormScale<T> ScaleOf(const NormRows& a, bool centered) {
  return {static_cast<const T*>(a.weight), centered ? Compute<T>(0) : Compute<T>(a.offset)};
}

template <int kN, typename T>
__device__ inline void LoadWide(const T* p, Compute<T>* v) {
  const Vector<T, kN> x = LoadVector<T, kN>(p);
#pragma unroll
  for (int j = 0; j < kN; ++j) v[j] = Widen(x.v[j]);
}
template <int kN, typename T>
__device__ inline void StoreNarrow(T* p, const Compute<T>* v) {
  Vector<T, kN> y;
#pragma unroll
  for (int j = 0; j < kN; ++j) y.v[j] = Narrow<T>(v[j]);
  StoreVector<T, kN>(p, y);
}

template <typename T>
__global__ void __launch_bounds__(kMaxRowBlock)
    NormKernel(NormRows a, double eps, T* y, Compute<T>* means, Compute<T>* rstds, bool keep) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  const bool centered = means != nullptr;
  const NormScale<T> scale = ScaleOf<T>(a, centered);
  const T* const bias = static_cast<const T*>(a.bias);
  const double n = static_cast<double>(a.n);
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const T* const x = static_cast<const T*>(a.x) + r * a.n;
    T* const to = y + r * a.n;
    const RowSplit row = SplitRow(a.n, x, to, scale.weight, bias);
    T* const kept = KeptRow(a.n, 0, x);
    const T* const again = keep ? kept : x;
    C mean = 0;
    double total = 0;
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      const Vector<T, kN> v = LoadVector<T, kN>(x + i);
      if (keep) StoreVector<T, kN>(kept + i, v);
      C part = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const C wide = Widen(v.v[j]);
        part += centered ? wide : wide * wide;
      }
      total += static_cast<double>(part);
    });
    total = LinesReduce(total, Plus(), 1, scratch);
    if (centered) {
      mean = static_cast<C>(total / n);
      total = 0;
      ForPieces<T>(row, [&](int64_t i, auto few) {
        constexpr int kN = decltype(few)::value;
        C v[kN];
        LoadWide<kN>(again + i, v);
        C part = 0;
#pragma unroll
        for (int j = 0; j < kN; ++j) part += (v[j] - mean) * (v[j] - mean);
        total += static_cast<double>(part);
      });
      total = LinesReduce(total, Plus(), 1, scratch);
    }
    const C rstd = 1 / SqrtOf(static_cast<C>(total / n) + static_cast<C>(eps));
    if (threadIdx.x == 0) {
      if (centered) means[r] = mean;
      rstds[r] = rstd;
    }
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      C h[kN];
      LoadWide<kN>(again + i, h);
#pragma unroll
      for (int j = 0; j < kN; ++j) h[j] = (h[j] - mean) * rstd;
      scale.template Multiply<kN>(i, h);
      if (bias != nullptr) {
        const Vector<T, kN> b = LoadVector<T, kN>(bias + i);
#pragma unroll
        for (int j = 0; j < kN; ++j) h[j] += Widen(b.v[j]);
      }
      StoreNarrow<kN>(to + i, h);
    });
    __syncthreads();  // before the next row is kept
  }
}

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy w; without centring rstd (g - h mean(g h)).
template <typename T>
__global__ void __launch_bounds__(kMaxRowBlock)
    NormGradKernel(NormRows a, const T* dys, const Compute<T>* means, const Compute<T>* rstds,
                   T* dxs, bool keep) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  const bool centered = means != nullptr;
  const NormScale<T> scale = ScaleOf<T>(a, centered);
  const double n = static_cast<double>(a.n);
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const T *const x = static_cast<const T*>(a.x) + r * a.n, *const dy = dys + r * a.n;
    T* const dx = dxs + r * a.n;
    const RowSplit row = SplitRow(a.n, x, dy, dx, scale.weight);
    T *const kept = KeptRow(a.n, 0, x), *const dkept = KeptRow(a.n, 1, x);
    const C mean = centered ? means[r] : C(0), rstd = rstds[r];
    double sum_g = 0, sum_gh = 0;
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      const Vector<T, kN> v = LoadVector<T, kN>(x + i), dv = LoadVector<T, kN>(dy + i);
      if (keep) {
        StoreVector<T, kN>(kept + i, v);
        StoreVector<T, kN>(dkept + i, dv);
      }
      C g[kN], part_g = 0, part_gh = 0;
#pragma unroll
      for (int j = 0; j < kN; ++j) g[j] = Widen(dv.v[j]);
      scale.template Multiply<kN>(i, g);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        part_g += g[j];
        part_gh += g[j] * ((Widen(v.v[j]) - mean) * rstd);
      }
      sum_g += static_cast<double>(part_g);
      sum_gh += static_cast<double>(part_gh);
    });
    C mean_g = 0;
    if (centered) mean_g = static_cast<C>(LinesReduce(sum_g, Plus(), 1, scratch) / n);
    const C mean_gh = static_cast<C>(LinesReduce(sum_gh, Plus(), 1, scratch) / n);
    ForPieces<T>(row, [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      C h[kN], g[kN];
      LoadWide<kN>((keep ? kept : x) + i, h);
      LoadWide<kN>((keep ? dkept : dy) + i, g);
      scale.template Multiply<kN>(i, g);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        g[j] = (g[j] - mean_g - (h[j] - mean) * rstd * mean_gh) * rstd;
      }
      StoreNarrow<kN>(dx + i, g);
    });
    __syncthreads();  // before the next row is kept
  }
}

// kN columns of a block of rows to a thread: the sums of dy h and of dy.
template <typename T, int kN>
__global__ void NormParamGradKernel(NormRows a, const T* dys, const Compute<T>* means,
                                    const Compute<T>* rstds, Compute<T>* dw, Compute<T>* db) {
  using C = Compute<T>;
  const bool centered = means != nullptr;
  const int64_t pieces = a.n / kN, tasks = (a.rows + kNormBlock - 1) / kNormBlock * pieces;
  for (int64_t task = GlobalThread(); task < tasks; task += GlobalThreads()) {
    const int64_t block = task / pieces, column = task % pieces * kN;
    const int64_t first = block * kNormBlock;
    const int64_t last = a.rows - first < kNormBlock ? a.rows : first + kNormBlock;
    C w[kN], b[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) w[j] = b[j] = 0;
#pragma unroll 4
    for (int64_t r = first; r < last; ++r) {
      C x[kN], dy[kN];
      LoadWide<kN>(static_cast<const T*>(a.x) + r * a.n + column, x);
      LoadWide<kN>(dys + r * a.n + column, dy);
      const C mean = centered ? means[r] : C(0), rstd = rstds[r];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        w[j] += dy[j] * ((x[j] - mean) * rstd);
        b[j] += dy[j];
      }
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      dw[block * a.n + column + j] = w[j];
      if (centered) db[block * a.n + column + j] = b[j];
    }
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchNorm(const GpuCall& call, const NormRows& a, double eps, void* y, void* mean,
                    void* rstd) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    return Launch(NormKernel<T>, GridForRows(call, a.rows), RowBlock<T>(a.n), RowShared<T>(a.n, 1),
                  call, a, eps, static_cast<T*>(y), static_cast<C*>(mean), static_cast<C*>(rstd),
                  CanKeep<T>(a.n, 1));
  });
}

GpuError LaunchNormGrad(const GpuCall& call, const NormRows& a, const void* dy, const void* mean,
                        const void* rstd, void* dx) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    return Launch(NormGradKernel<T>, GridForRows(call, a.rows), RowBlock<T>(a.n),
                  RowShared<T>(a.n, 2), call, a, static_cast<const T*>(dy),
                  static_cast<const C*>(mean), static_cast<const C*>(rstd), static_cast<T*>(dx),
                  CanKeep<T>(a.n, 2));
  });
}

GpuError LaunchNormParamGradBlocks(const GpuCall& call, const NormRows& a, const void* dy,
                                   const void* mean, const void* rstd, void* dw, void* db) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    constexpr int kN = kVector<T>;
    const T *const x = static_cast<const T*>(a.x), *const from = static_cast<const T*>(dy);
    const bool vectors = CanVectorize(x, a.n) && CanVectorize(from, a.n);
    const int64_t tasks = NormBlocks(a.rows) * (vectors ? a.n / kN : a.n);
    return Launch(vectors ? NormParamGradKernel<T, kN> : NormParamGradKernel<T, 1>,
                  GridFor(call, tasks), kBlock, 0, call, a, from, static_cast<const C*>(mean),
                  static_cast<const C*>(rstd), static_cast<C*>(dw), static_cast<C*>(db));
  });
}

}  // namespace tally
