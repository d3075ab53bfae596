#include "tally/ops/pool_gpu.h"

#include "tally/ops/planes.cuh"

namespace tally::gpu {
namespace {

using internal::GpuPool;
using internal::GpuPoolIndex;

template <typename T>
__global__ void MaxPoolKernel(GpuPool f, int64_t* index, PlaneParts parts, int64_t pieces) {
  using C = Compute<T>;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t plane = parts.PlaneOf(piece), at = parts.ElementOf(piece);
    if (at >= parts.plane) continue;
    const T* const x = static_cast<const T*>(f.from) + plane * f.h.in * f.w.in;
    const int64_t top = at / parts.width * f.h.stride, left = at % parts.width * f.w.stride;
    C best = 0;
    int64_t from = -1;
    for (int64_t i = 0; i < f.h.kernel; ++i) {
      const int64_t r = top + f.h.offset(i);
      if (r < 0 || r >= f.h.in) continue;
      for (int64_t j = 0; j < f.w.kernel; ++j) {
        const int64_t c = left + f.w.offset(j);
        if (c < 0 || c >= f.w.in) continue;
        const C v = Widen(x[r * f.w.in + c]);
        // The first of equals; a NaN is the greatest.
        if (from < 0 || v > best || (v != v && best == best)) {
          best = v;
          from = r * f.w.in + c;
        }
      }
    }
    static_cast<T*>(f.to)[plane * parts.plane + at] = Narrow<T>(best);
    index[plane * parts.plane + at] = from;
  }
}

template <typename T>
__global__ void AvgPoolKernel(GpuPool f, PlaneParts parts, int64_t pieces) {
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t plane = parts.PlaneOf(piece), at = parts.ElementOf(piece);
    if (at >= parts.plane) continue;
    const T* const x = static_cast<const T*>(f.from) + plane * f.h.in * f.w.in;
    const int64_t row = at / parts.width, col = at % parts.width;
    Compute<T> sum = 0;
    for (int64_t i = 0; i < f.h.kernel; ++i) {
      const int64_t r = row * f.h.stride + f.h.offset(i);
      if (r < 0 || r >= f.h.in) continue;
      for (int64_t j = 0; j < f.w.kernel; ++j) {
        const int64_t c = col * f.w.stride + f.w.offset(j);
        if (c >= 0 && c < f.w.in) sum += Widen(x[r * f.w.in + c]);
      }
    }
    const int64_t count =
        WindowCount(f.h, row, f.count_include_pad) * WindowCount(f.w, col, f.count_include_pad);
    static_cast<T*>(f.to)[plane * parts.plane + at] =
        Narrow<T>(sum / static_cast<Compute<T>>(count));
  }
}

// dx of each element: its windows' shares, in order of outputs.
template <typename T>
__global__ void AvgPoolGradKernel(GpuPool f, PlaneParts parts, int64_t pieces) {
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t plane = parts.PlaneOf(piece), at = parts.ElementOf(piece);
    if (at >= parts.plane) continue;
    const T* const dy = static_cast<const T*>(f.from) + plane * f.h.out * f.w.out;
    const WindowRange rows = WindowsOver(f.h, at / parts.width);
    const WindowRange cols = WindowsOver(f.w, at % parts.width);
    Compute<T> sum = 0;
    for (int64_t o = rows.begin; o < rows.end; ++o) {
      const int64_t high = WindowCount(f.h, o, f.count_include_pad);
      for (int64_t q = cols.begin; q < cols.end; ++q) {
        const int64_t count = high * WindowCount(f.w, q, f.count_include_pad);
        sum += Widen(dy[o * f.w.out + q]) / static_cast<Compute<T>>(count);
      }
    }
    static_cast<T*>(f.to)[plane * parts.plane + at] = Narrow<T>(sum);
  }
}

// ---- by index

enum class SumsIn { kResult, kShared, kBuffers };

// A block adds up a plane, some outputs at a time: of those that meet in one element the first
// thread adds all, in their order.
template <typename T>
__global__ void MaxPoolGradKernel(GpuPoolIndex f, SumsIn where, GpuFault* fault) {
  using C = Compute<T>;
  int64_t* const places = Shared<int64_t>();
  C* const values = reinterpret_cast<C*>(places + blockDim.x);
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t p = blockIdx.x; p < f.planes; p += gridDim.x) {
    T* const dx = static_cast<T*>(f.to) + p * f.plane;
    C* sums = values + threads;
    if (where == SumsIn::kBuffers) sums = reinterpret_cast<C*>(f.sums) + blockIdx.x * f.plane;
    if constexpr (std::is_same_v<T, C>) sums = dx;
    for (int64_t i = t; i < f.plane; i += threads) sums[i] = 0;
    for (int64_t first = 0; first < f.count; first += threads) {
      const int64_t at = p * f.count + first + t;
      int64_t place = -1;
      if (first + t < f.count && InRange(fault, 1, f.index[at], f.plane)) place = f.index[at];
      places[t] = place;
      values[t] = place < 0 ? C() : Widen(static_cast<const T*>(f.from)[at]);
      __syncthreads();
      bool adds = place >= 0;
      for (int s = 0; s < t && adds; ++s) adds = places[s] != place;
      if (adds) {
        C sum = sums[place];
        for (int s = t; s < threads; ++s) {
          if (places[s] == place) sum += values[s];
        }
        sums[place] = sum;
      }
      __syncthreads();
    }
    if constexpr (!std::is_same_v<T, C>) {
      __syncthreads();
      for (int64_t i = t; i < f.plane; i += threads) dx[i] = Narrow<T>(sums[i]);
      __syncthreads();
    }
  }
}

template <typename T>
__global__ void MaxPoolPickKernel(GpuPoolIndex f, GpuFault* fault) {
  const int64_t n = f.planes * f.count;
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) {
    const int64_t at = f.index[i];
    if (!InRange(fault, 1, at, f.plane)) continue;
    static_cast<T*>(f.to)[i] = static_cast<const T*>(f.from)[i / f.count * f.plane + at];
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

using namespace gpu;  // NOLINT: these are their launchers

GpuError LaunchMaxPool(const GpuCall& call, const GpuPool& f, int64_t* index) {
  return ForPlanes(f.planes, f.h.out, f.w.out,
                   [&](const PlaneParts& parts, int64_t pieces, int threads) {
                     return VisitFloat(f.dtype, [&](auto element) {
                       return Launch(MaxPoolKernel<decltype(element)>, GridForPieces(pieces),
                                     threads, 0, call, f, index, parts, pieces);
                     });
                   });
}

GpuError LaunchAvgPool(const GpuCall& call, const GpuPool& f) {
  return ForPlanes(f.planes, f.h.out, f.w.out,
                   [&](const PlaneParts& parts, int64_t pieces, int threads) {
                     return VisitFloat(f.dtype, [&](auto element) {
                       return Launch(AvgPoolKernel<decltype(element)>, GridForPieces(pieces),
                                     threads, 0, call, f, parts, pieces);
                     });
                   });
}

GpuError LaunchAvgPoolGrad(const GpuCall& call, const GpuPool& f) {
  return ForPlanes(f.planes, f.h.in, f.w.in,
                   [&](const PlaneParts& parts, int64_t pieces, int threads) {
                     return VisitFloat(f.dtype, [&](auto element) {
                       return Launch(AvgPoolGradKernel<decltype(element)>, GridForPieces(pieces),
                                     threads, 0, call, f, parts, pieces);
                     });
                   });
}

GpuError LaunchMaxPoolGrad(const GpuCall& call, const GpuPoolIndex& f) {
  return VisitFloat(f.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    constexpr size_t kMostShared = 92 * 1024;  // what every device has, less some
    const int threads = BlockFor(f.count);
    size_t shared = static_cast<size_t>(threads) * (sizeof(int64_t) + sizeof(C));
    SumsIn where = SumsIn::kResult;
    int64_t blocks = f.planes;
    if (!std::is_same_v<T, C>) {
      const size_t sums = static_cast<size_t>(f.plane) * sizeof(C);
      where = shared + sums <= kMostShared ? SumsIn::kShared : SumsIn::kBuffers;
      if (where == SumsIn::kShared) shared += sums;
      if (where == SumsIn::kBuffers && blocks > f.buffers) blocks = f.buffers;
    }
    return Launch(MaxPoolGradKernel<T>, GridForPieces(blocks), threads, shared, call, f, where,
                  call.fault);
  });
}

GpuError LaunchMaxPoolPick(const GpuCall& call, const GpuPoolIndex& f) {
  return VisitSize(ItemSize(f.dtype), [&](auto element) {
    return Launch(MaxPoolPickKernel<decltype(element)>, GridFor(call, f.planes * f.count), kBlock,
                  0, call, f, call.fault);
  });
}

}  // namespace tally::internal
