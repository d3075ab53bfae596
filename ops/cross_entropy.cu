// Cross entropy: the logits are read once for the loss, and once for their gradient.
#include "tally/ops/cross_entropy_gpu.h"
#include "tally/ops/rows.cuh"

namespace tally::gpu {
namespace {

__device__ inline int64_t TargetOf(const CrossEntropyRows& a, int64_t r) {
  return a.targets.wide ? static_cast<const int64_t*>(a.targets.ids)[r]
                        : static_cast<const int32_t*>(a.targets.ids)[r];
}
// Whether row r counts. One thread of the row raises the fault of a target that is none.
__device__ inline bool Counts(const CrossEntropyRows& a, int64_t target, GpuFault* fault,
                              int operand, bool tells) {
  if (target == a.ignore_index) return false;
  if (target >= 0 && target < a.classes) return true;
  if (tells) InRange(fault, operand, target, a.classes);
  return false;
}

template <typename T>
__global__ void __launch_bounds__(kMaxRowBlock)
    CrossEntropyKernel(CrossEntropyRows a, Compute<T>* lse, double* losses, GpuFault* fault) {
  using C = Compute<T>;
  double* const scratch = Shared<double>();
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const T* const x = static_cast<const T*>(a.logits) + r * a.classes;
    MaxSum<C> m;
    double total = 0;
    ForPieces<T>(SplitRow(a.classes, x), [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      const Vector<T, kN> v = LoadVector<T, kN>(x + i);
      C wide[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) wide[j] = Widen(v.v[j]);
      m.template Add<kN>(wide);
      if (a.smoothing != 0) {
        C part = 0;
#pragma unroll
        for (int j = 0; j < kN; ++j) part += wide[j];
        total += static_cast<double>(part);
      }
    });
    m.Combine(1, scratch);
    if (a.smoothing != 0) total = LinesReduce(total, Plus(), 1, scratch);
    if (threadIdx.x != 0) continue;
    const C log_sum = m.LogSum();
    lse[r] = log_sum;
    const int64_t target = TargetOf(a, r);
    if (!Counts(a, target, fault, 1, true)) {
      losses[r] = 0;
      continue;
    }
    const double picked = static_cast<double>(Widen(x[target]));
    losses[r] = log_sum - picked;
    if (a.smoothing != 0) {
      const double each = a.smoothing / static_cast<double>(a.classes);
      losses[r] = log_sum - (1 - a.smoothing) * picked - each * total;
    }
  }
}

// Sums over rows are made in parts, whose number depends on that of the rows alone, and left in
// GpuCall::partials: how many rows count, then the losses.
inline constexpr int64_t kLeastRows = 1024;  // of a part
inline constexpr int64_t kMostParts = 1024;
static_assert(2 * kMostParts * sizeof(double) <= kGpuPartialsBytes);
inline int64_t PartsOfRows(int64_t rows) {
  const int64_t parts = (rows + kLeastRows - 1) / kLeastRows;
  return parts < 1 ? 1 : parts < kMostParts ? parts : kMostParts;
}

// Without `losses` only the count.
__global__ void SumRowsKernel(CrossEntropyRows a, const double* losses, int64_t parts,
                              double* partials) {
  double* const scratch = Shared<double>();
  for (int64_t part = blockIdx.x; part < parts; part += gridDim.x) {
    int64_t count = 0;
    double loss = 0;
    for (int64_t r = part * blockDim.x + threadIdx.x; r < a.rows; r += parts * blockDim.x) {
      count += TargetOf(a, r) != a.ignore_index ? 1 : 0;
      if (losses != nullptr) loss += losses[r];
    }
    const double counted = LinesReduce(static_cast<double>(count), Plus(), 1, scratch);
    loss = LinesReduce(loss, Plus(), 1, scratch);
    if (threadIdx.x != 0) continue;
    partials[part] = counted;
    partials[parts + part] = loss;
  }
}
GpuError LaunchSumRows(const GpuCall& call, const CrossEntropyRows& a, const double* losses) {
  const int64_t parts = PartsOfRows(a.rows);
  return Launch(SumRowsKernel, GridForPieces(parts), kBlock, ReduceBytes<double>(kBlock), call, a,
                losses, parts, static_cast<double*>(call.partials));
}
// All threads of the block call.
__device__ inline double SumOf(const double* partials, int64_t parts, double* scratch) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) sum += partials[i];
  return LinesReduce(sum, Plus(), 1, scratch);
}

// One block: the sum of all losses, or their mean over the rows that count.
template <typename C>
__global__ void LossKernel(const double* partials, int64_t parts, bool mean, C* loss) {
  double* const scratch = Shared<double>();
  const double count = SumOf(partials, parts, scratch);
  const double total = SumOf(partials + parts, parts, scratch);
  if (threadIdx.x == 0) *loss = static_cast<C>(mean ? total / count : total);
}

// dx = (e^(x - lse) - smoothing / C - (1 - smoothing) [c = target]) scale. `counts`: the rows that
// count, in parts; null where the losses were added up.
template <typename T>
__global__ void __launch_bounds__(kMaxRowBlock)
    CrossEntropyGradKernel(CrossEntropyRows a, const double* counts, int64_t parts,
                           const Compute<T>* lse, const Compute<T>* dy, T* out, GpuFault* fault) {
  using C = Compute<T>;
  double scale_of = static_cast<double>(*dy);
  if (counts != nullptr) scale_of /= SumOf(counts, parts, Shared<double>());
  const C scale = static_cast<C>(scale_of);
  const C each = static_cast<C>(a.smoothing / static_cast<double>(a.classes));
  const C rest = static_cast<C>(1 - a.smoothing);
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const T* const x = static_cast<const T*>(a.logits) + r * a.classes;
    T* const dx = out + r * a.classes;
    const int64_t target = TargetOf(a, r);
    if (!Counts(a, target, fault, 1, threadIdx.x == 0)) {
      FillRow(dx, a.classes, Narrow<T>(C(0)));
      continue;
    }
    const C shift = lse[r];
    ForPieces<T>(SplitRow(a.classes, x, dx), [&](int64_t i, auto few) {
      constexpr int kN = decltype(few)::value;
      Vector<T, kN> v = LoadVector<T, kN>(x + i);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        C p = ExpOf(Widen(v.v[j]) - shift) - each;
        if (i + j == target) p -= rest;
        v.v[j] = Narrow<T>(p * scale);
      }
      StoreVector<T, kN>(dx + i, v);
    });
  }
}

template <typename T>
__global__ void OneHotKernel(CrossEntropyRows a, T* y, GpuFault* fault) {
  const int64_t count = a.rows * a.classes;
  const T one = Narrow<T>(1), zero = Narrow<T>(0);
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const int64_t r = i / a.classes, c = i - r * a.classes;
    const int64_t target = TargetOf(a, r);
    y[i] = Counts(a, target, fault, 0, c == 0) && c == target ? one : zero;
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally {

GpuError LaunchCrossEntropy(const GpuCall& call, const CrossEntropyRows& a, bool mean, void* lse,
                            double* losses, void* loss) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    GpuError error =
        Launch(CrossEntropyKernel<T>, GridForRows(call, a.rows), RowBlock<T>(a.classes),
               kRowScratch, call, a, static_cast<C*>(lse), losses, call.fault);
    if (error == cudaSuccess) error = LaunchSumRows(call, a, losses);
    if (error != cudaSuccess) return error;
    return Launch(LossKernel<C>, 1, kBlock, ReduceBytes<double>(kBlock), call,
                  static_cast<const double*>(call.partials), PartsOfRows(a.rows), mean,
                  static_cast<C*>(loss));
  });
}

GpuError LaunchCrossEntropyGrad(const GpuCall& call, const CrossEntropyRows& a, bool mean,
                                const void* lse, const void* dy, void* dlogits) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    if (mean) {
      const GpuError error = LaunchSumRows(call, a, nullptr);
      if (error != cudaSuccess) return error;
    }
    const double* const counts = mean ? static_cast<const double*>(call.partials) : nullptr;
    return Launch(CrossEntropyGradKernel<T>, GridForRows(call, a.rows), RowBlock<T>(a.classes),
                  kRowScratch, call, a, counts, PartsOfRows(a.rows), static_cast<const C*>(lse),
                  static_cast<const C*>(dy), static_cast<T*>(dlogits), call.fault);
  });
}

GpuError LaunchOneHot(const GpuCall& call, const CrossEntropyRows& a, void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(a.dtype, [&](auto element) {
    using T = decltype(element);
    return Launch(OneHotKernel<T>, GridFor(call, a.rows * a.classes), kBlock, 0, call, a,
                  static_cast<T*>(y), call.fault);
  });
}

}  // namespace tally
