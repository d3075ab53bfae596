#include "tally/ops/gather_gpu.h"

#include "tally/ops/copy.cuh"
#include "tally/ops/index.cuh"

namespace tally::gpu {
namespace {

// `row` units are a row.
template <typename U, typename Index>
__device__ inline void GatherUnits(const GpuCall& call, const GpuIds& ids, const U* table,
                                   int64_t rows, int64_t row, U* y) {
  const int64_t n = ids.count * row;
  for (int64_t u = GlobalThread(); u < n; u += GlobalThreads()) {
    const auto i = static_cast<int64_t>(static_cast<Index>(u) / static_cast<Index>(row));
    const int64_t id = ids[i];
    if (InRange(call.fault, ids.operand, id, rows)) y[u] = table[id * row + u - i * row];
  }
}

template <typename U>
__global__ void GatherRowsKernel(GpuCall call, GpuIds ids, const U* table, int64_t rows,
                                 int64_t row, U* y) {
  if (ids.count * row <= INT32_MAX) {
    GatherUnits<U, uint32_t>(call, ids, table, rows, row, y);
  } else {
    GatherUnits<U, int64_t>(call, ids, table, rows, row, y);
  }
}

// Rows without elements: the ids are still looked at.
__global__ void CheckKernel(GpuCall call, GpuIds ids, int64_t rows) {
  for (int64_t i = GlobalThread(); i < ids.count; i += GlobalThreads()) {
    InRange(call.fault, ids.operand, ids[i], rows);
  }
}

// A warp for each row and band of columns.
template <typename T, int kN>
__global__ void AddRowsKernel(const T* updates, const int64_t* begin, const int64_t* order,
                              int64_t rows, int64_t d, T* y) {
  constexpr int kAhead = 4;  // loads in flight
  const int64_t width = int64_t{kWarp} * kN, bands = (d + width - 1) / width;
  const int64_t lane = threadIdx.x % kWarp;
  for (int64_t task = GlobalThread() / kWarp; task < rows * bands;
       task += GlobalThreads() / kWarp) {
    const int64_t row = task / bands, column = task % bands * width + lane * kN;
    if (column >= d) continue;
    Compute<T> sum[kN] = {};
    int64_t i = begin[row];
    const int64_t end = begin[row + 1];
    for (; i + kAhead <= end; i += kAhead) {
      Vector<T, kN> v[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        v[a] = LoadVector<T, kN>(updates + order[i + a] * d + column);
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
#pragma unroll
        for (int k = 0; k < kN; ++k) sum[k] += Widen(v[a].v[k]);
      }
    }
    for (; i < end; ++i) {
      const auto v = LoadVector<T, kN>(updates + order[i] * d + column);
#pragma unroll
      for (int k = 0; k < kN; ++k) sum[k] += Widen(v.v[k]);
    }
    Vector<T, kN> total;
#pragma unroll
    for (int k = 0; k < kN; ++k) total.v[k] = Narrow<T>(sum[k]);
    StoreVector<T, kN>(y + row * d + column, total);
  }
}

template <typename T, int kN>
GpuError AddRows(const GpuCall& call, const T* updates, const int64_t* begin, const int64_t* order,
                 int64_t rows, int64_t d, T* y) {
  const int64_t bands = (d + kWarp * kN - 1) / (kWarp * kN);
  return Launch(AddRowsKernel<T, kN>, GridFor(call, rows * bands * kWarp), kBlock, 0, call, updates,
                begin, order, rows, d, y);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchGatherRows(const GpuCall& call, const GpuIds& ids, const void* table, int64_t rows,
                          int64_t bytes, int64_t item, void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  if (bytes == 0) {
    return Launch(CheckKernel, GridFor(call, ids.count), kBlock, 0, call, call, ids, rows);
  }
  while (item < 16 && bytes % (2 * item) == 0 && IsEven(item, table) && IsEven(item, y)) item *= 2;
  return VisitUnit(item, [&](auto unit) {
    using U = decltype(unit);
    const int64_t row = bytes / item;
    return Launch(GatherRowsKernel<U>, GridFor(call, ids.count * row), kBlock, 0, call, call, ids,
                  static_cast<const U*>(table), rows, row, static_cast<U*>(y));
  });
}

GpuError LaunchAddRows(const GpuCall& call, DType dtype, const void* updates, const int64_t* begin,
                       const int64_t* order, int64_t rows, int64_t d, void* y) {
  return gpu::VisitFloat(dtype, [&](auto element) {
    using T = decltype(element);
    const auto* const from = static_cast<const T*>(updates);
    auto* const to = static_cast<T*>(y);
    return gpu::CanVectorize(from, d) && gpu::CanVectorize(to, d)
               ? gpu::AddRows<T, gpu::kVector<T>>(call, from, begin, order, rows, d, to)
               : gpu::AddRows<T, 1>(call, from, begin, order, rows, d, to);
  });
}

}  // namespace tally::internal
