#include "tally/ops/grouped_matmul_gpu.h"

#include "tally/tensor/kernel.cuh"

namespace tally::gpu {
namespace {

using internal::GpuGroups;

constexpr int kTile = 64;                // rows and columns of y that a block makes
constexpr int kDepth = 16;               // terms that lie in shared memory at a time
constexpr int kSide = 4;                 // rows and columns of a thread
constexpr int kThreads = kTile / kSide;  // along either
static_assert(kThreads * kThreads == kBlock);

// Rows of a tile in shared memory begin on 16 bytes and in different banks.
template <typename C>
constexpr int kPitch = kTile + kVector<C>;
template <typename C>
constexpr size_t kTileBytes = 2 * sizeof(C) * kDepth* kPitch<C>;

// Element (i, k) at data[i step + k deep], for i in [0, count).
template <typename T>
struct Factor {
  const T* data;
  int64_t count, step, deep;
};

// tile[k][i] = element (first + i, k0 + k), 0 outside. Neighbouring threads read neighbours.
template <typename T>
__device__ inline void LoadTile(const Factor<T>& f, int64_t first, int64_t k0, int64_t depth,
                                Compute<T>* tile) {
  const int t = static_cast<int>(threadIdx.x);
  const bool along = f.deep == 1;
#pragma unroll
  for (int part = 0; part < kTile * kDepth / kBlock; ++part) {
    const int e = part * kBlock + t;
    const int i = along ? e / kDepth : e % kTile, k = along ? e % kDepth : e / kTile;
    const bool inside = first + i < f.count && k0 + k < depth;
    tile[k * kPitch<Compute<T>> + i] =
        inside ? Widen(f.data[(first + i) * f.step + (k0 + k) * f.deep]) : Compute<T>();
  }
}

// The tile of y at (row, column): the sum over `depth` terms in ascending order.
template <typename T>
__device__ void TileProduct(const Factor<T>& a, const Factor<T>& b, int64_t depth, int64_t row,
                            int64_t column, T* y) {
  using C = Compute<T>;
  constexpr int kN = kVector<C> < kSide ? kVector<C> : kSide;
  C* const a_tile = Shared<C>();
  C* const b_tile = a_tile + kDepth * kPitch<C>;
  const int y0 = static_cast<int>(threadIdx.x) / kThreads * kSide;
  const int x0 = static_cast<int>(threadIdx.x) % kThreads * kSide;
  C sum[kSide][kSide] = {};
  for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
    LoadTile(a, row, k0, depth, a_tile);
    LoadTile(b, column, k0, depth, b_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      C p[kSide], q[kSide];
#pragma unroll
      for (int n = 0; n < kSide; n += kN) {
        const auto v = LoadVector<C, kN>(a_tile + k * kPitch<C> + y0 + n);
        const auto w = LoadVector<C, kN>(b_tile + k * kPitch<C> + x0 + n);
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          p[n + j] = v.v[j];
          q[n + j] = w.v[j];
        }
      }
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sum[i][j] += p[i] * q[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    if (row + y0 + i >= a.count) break;
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      if (column + x0 + j >= b.count) break;
      y[(row + y0 + i) * b.count + column + x0 + j] = Narrow<T>(sum[i][j]);
    }
  }
}

// Where a group begins; inside the rows even where offsets are at fault.
__device__ inline int64_t BeginOf(const GpuGroups& g, int64_t group) {
  const int64_t at = g.offsets[group];
  return at < 0 ? 0 : at < g.rows ? at : g.rows;
}

__global__ void CheckOffsetsKernel(GpuCall call, GpuGroups g) {
  for (int64_t e = GlobalThread(); e <= g.groups; e += GlobalThreads()) {
    const int64_t at = g.offsets[e];
    const bool fits = (e > 0 ? at >= g.offsets[e - 1] : at == 0) && (e < g.groups || at == g.rows);
    if (!fits) Raise(call.fault, GpuFault::kOffsets, 2, at, g.rows);
  }
}

// Tiles begin at multiples of kTile of all rows, and one that several groups share is met once for
// each. Group g has the places from offsets[g] / kTile + g on: no fewer than tiles that it touches.
__host__ __device__ inline int64_t PlacesOf(const GpuGroups& g) {
  return g.rows / kTile + g.groups;
}

template <typename T>
__global__ void ProductKernel(GpuGroups g) {
  const int64_t across = (g.q + kTile - 1) / kTile;
  for (int64_t task = blockIdx.x; task < PlacesOf(g) * across; task += gridDim.x) {
    const int64_t place = task / across;
    int64_t low = 0, high = g.groups - 1;  // the last group whose places begin here or before
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (BeginOf(g, middle) / kTile + middle <= place) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t begin = BeginOf(g, low), end = BeginOf(g, low + 1);
    const int64_t tile = (place - low) * kTile;  // begin / kTile and the tiles of the group before
    const int64_t first = tile > begin ? tile : begin;
    const int64_t last = tile + kTile < end ? tile + kTile : end;
    if (first >= last) continue;
    const Factor<T> a{static_cast<const T*>(g.a) + first * g.a_row, last - first, g.a_row,
                      g.a_column};
    const Factor<T> b{static_cast<const T*>(g.b) + low * g.b_group, g.q, g.b_column, g.b_row};
    TileProduct(a, b, g.p, 0, task % across * kTile, static_cast<T*>(g.y) + first * g.q);
  }
}

template <typename T>
__global__ void OuterKernel(GpuGroups g) {
  const int64_t across = (g.q + kTile - 1) / kTile, down = (g.p + kTile - 1) / kTile;
  for (int64_t task = blockIdx.x; task < g.groups * down * across; task += gridDim.x) {
    const int64_t group = task / across / down;
    const int64_t begin = BeginOf(g, group), end = BeginOf(g, group + 1);
    const Factor<T> a{static_cast<const T*>(g.a) + begin * g.a_row, g.p, g.a_column, g.a_row};
    const Factor<T> b{static_cast<const T*>(g.b) + begin * g.b_row, g.q, g.b_column, g.b_row};
    TileProduct(a, b, end - begin, task / across % down * kTile, task % across * kTile,
                static_cast<T*>(g.y) + group * g.p * g.q);
  }
}

GpuError Check(const GpuCall& call, const GpuGroups& g) {
  return Launch(CheckOffsetsKernel, GridFor(call, g.groups + 1), kBlock, 0, call, call, g);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchGroupedProduct(const GpuCall& call, const GpuGroups& g) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const GpuError error = Check(call, g);
  if (error != cudaSuccess || g.rows == 0 || g.groups == 0) return error;
  const int64_t tasks = PlacesOf(g) * ((g.q + kTile - 1) / kTile);
  return VisitFloat(g.dtype, [&](auto element) {
    using T = decltype(element);
    return Launch(ProductKernel<T>, GridForRows(call, tasks), kBlock, kTileBytes<Compute<T>>, call,
                  g);
  });
}

GpuError LaunchGroupedOuter(const GpuCall& call, const GpuGroups& g) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const GpuError error = Check(call, g);
  if (error != cudaSuccess) return error;
  const int64_t tasks = g.groups * ((g.p + kTile - 1) / kTile) * ((g.q + kTile - 1) / kTile);
  return VisitFloat(g.dtype, [&](auto element) {
    using T = decltype(element);
    return Launch(OuterKernel<T>, GridForRows(call, tasks), kBlock, kTileBytes<Compute<T>>, call,
                  g);
  });
}

}  // namespace tally::internal
