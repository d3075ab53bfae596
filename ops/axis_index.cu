#include "tally/ops/axis_index_gpu.h"

#include "tally/ops/index.cuh"

namespace tally::gpu {
namespace {

using internal::GpuAxisIndex;

template <typename Index>
__device__ inline int64_t DataOffset(const GpuAxisIndex& a, Index i) {
  int64_t offset = 0;
  for (int d = a.rank - 1; d >= 0; --d) {
    const auto dim = static_cast<Index>(a.dims[d]);
    if (d != a.axis) offset += static_cast<int64_t>(i % dim) * a.data_strides[d];
    i /= dim;
  }
  return offset;
}

template <typename T>
__global__ void AxisGatherKernel(GpuCall call, GpuAxisIndex a, const T* x, T* y) {
  for (int64_t i = GlobalThread(); i < a.ids.count; i += GlobalThreads()) {
    const int64_t id = a.ids[i];
    if (!InRange(call.fault, a.ids.operand, id, a.limit)) continue;
    const int64_t offset =
        a.ids.count <= INT32_MAX ? DataOffset(a, static_cast<uint32_t>(i)) : DataOffset(a, i);
    y[i] = x[offset + id * a.data_strides[a.axis]];
  }
}

// Where a line along the axis begins.
struct Line {
  int64_t index, data;
};
__device__ inline Line LineAt(const GpuAxisIndex& a, int64_t line) {
  Line begin{0, 0};
  for (int d = a.rank - 1; d >= 0; --d) {
    if (d == a.axis) continue;
    const int64_t at = line % a.dims[d];
    line /= a.dims[d];
    begin.index += at * a.index_strides[d];
    begin.data += at * a.data_strides[d];
  }
  return begin;
}

// sums = x, or zeros.
template <typename T>
__global__ void BeginKernel(const T* x, Compute<T>* sums, int64_t n) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) {
    sums[i] = x == nullptr ? Compute<T>() : Widen(x[i]);
  }
}
template <typename T>
__global__ void EndKernel(const float* sums, T* y, int64_t n) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) y[i] = Narrow<T>(sums[i]);
}

// A thread for each line.
template <typename T>
__global__ void AddLinesKernel(GpuCall call, GpuAxisIndex a, int64_t lines, const T* updates,
                               Compute<T>* sums) {
  const int64_t length = a.dims[a.axis];
  for (int64_t line = GlobalThread(); line < lines; line += GlobalThreads()) {
    const Line begin = LineAt(a, line);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t at = begin.index + i * a.index_strides[a.axis];
      const int64_t id = a.ids[at];
      if (!InRange(call.fault, a.ids.operand, id, a.limit)) continue;
      sums[begin.data + id * a.data_strides[a.axis]] += Widen(updates[at]);
    }
  }
}

// Few and long lines: `parts` warps for each walk along it, and each adds what its ids get.
template <typename T>
__global__ void AddPartsKernel(GpuCall call, GpuAxisIndex a, int64_t lines, int64_t parts,
                               const T* updates, Compute<T>* sums) {
  const int64_t length = a.dims[a.axis];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t task = GlobalThread() / kWarp; task < lines * parts;
       task += GlobalThreads() / kWarp) {
    const Line begin = LineAt(a, task / parts);
    for (int64_t first = 0; first < length; first += kWarp) {
      const int64_t i = first + lane, at = begin.index + i * a.index_strides[a.axis];
      int64_t id = -1;
      if (i < length) {
        id = a.ids[at];
        if (!InRange(call.fault, a.ids.operand, id, a.limit)) id = -1;
      }
      const bool mine = id >= 0 && PartOf(id, parts) == task % parts;
      const Compute<T> update = mine ? Widen(updates[at]) : Compute<T>();
      for (unsigned left = __ballot_sync(kAllLanes, mine); left != 0; left &= left - 1) {
        const int source = __ffs(static_cast<int>(left)) - 1;
        const int64_t to = __shfl_sync(kAllLanes, id, source);
        const Compute<T> value = __shfl_sync(kAllLanes, update, source);
        // One thread alone adds: its own writes are what it reads.
        if (lane == 0) sums[begin.data + to * a.data_strides[a.axis]] += value;
      }
    }
  }
}

constexpr int64_t kLongLine = 64;
constexpr int64_t kWarpsPerUnit = 16;  // of lines in parts, per multiprocessor

template <typename T>
GpuError AddAlong(const GpuCall& call, const GpuAxisIndex& a, const T* updates, Compute<T>* sums) {
  const int64_t length = a.dims[a.axis], lines = length == 0 ? 0 : a.ids.count / length;
  const int64_t warps = int64_t{call.multiprocessors} * kWarpsPerUnit;
  if (length <= kLongLine || lines >= warps) {
    return Launch(AddLinesKernel<T>, GridFor(call, lines), kBlock, 0, call, call, a, lines, updates,
                  sums);
  }
  const int64_t parts = PartsFor(a.limit, warps / (lines > 0 ? lines : 1));
  return Launch(AddPartsKernel<T>, GridFor(call, lines * parts * kWarp), kBlock, 0, call, call, a,
                lines, parts, updates, sums);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchAxisGather(const GpuCall& call, const GpuAxisIndex& a, int64_t item, const void* x,
                          void* y) {
  return gpu::VisitSize(item, [&](auto element) {
    using T = decltype(element);
    return gpu::Launch(gpu::AxisGatherKernel<T>, gpu::GridFor(call, a.ids.count), gpu::kBlock, 0,
                       call, call, a, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

GpuError LaunchAxisScatterAdd(const GpuCall& call, const GpuAxisIndex& a, DType dtype,
                              const void* updates, const void* x, int64_t n, float* sums, void* y) {
  using namespace gpu;  // NOLINT: what kernels are made of
  return VisitFloat(dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    constexpr bool kInPlace = std::is_same_v<T, C>;
    C* to = nullptr;
    if constexpr (kInPlace) {
      to = static_cast<C*>(y);
    } else {
      to = sums;
    }
    GpuError error =
        Launch(BeginKernel<T>, GridFor(call, n), kBlock, 0, call, static_cast<const T*>(x), to, n);
    if (error == cudaSuccess) error = AddAlong(call, a, static_cast<const T*>(updates), to);
    if constexpr (!kInPlace) {
      if (error == cudaSuccess) {
        error =
            Launch(EndKernel<T>, GridFor(call, n), kBlock, 0, call, sums, static_cast<T*>(y), n);
      }
    }
    return error;
  });
}

}  // namespace tally::internal
