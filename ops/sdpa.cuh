// What the kernels of fused attention share: where rows lie, what the mask shows, tiles in shared
// memory, and one pair of query and key.
#ifndef TALLY_OPS_SDPA_CUH_
#define TALLY_OPS_SDPA_CUH_

#include "tally/ops/sdpa_gpu.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

using internal::GpuSdpa;

// Queries, and keys, of a tile.
inline constexpr int kSdpaTile = 64;

// By the kernels for any dtype and size, and by those on tensor cores: 16-bit floats whose d and e
// are multiples of 16, d at most 256 forward, both at most 128 backward.
GpuError LaunchSdpaPlain(const GpuCall& call, const GpuSdpa& f);
GpuError LaunchSdpaGradPlain(const GpuCall& call, const GpuSdpa& f);
bool SdpaTensorCores(const GpuSdpa& f);
bool SdpaGradTensorCores(const GpuSdpa& f);
GpuError LaunchSdpaTensor(const GpuCall& call, const GpuSdpa& f);
GpuError LaunchSdpaGradTensor(const GpuCall& call, const GpuSdpa& f);
// Fills f.delta.
GpuError LaunchSdpaDelta(const GpuCall& call, const GpuSdpa& f);

inline int64_t SdpaTilesOf(int64_t rows) { return (rows + kSdpaTile - 1) / kSdpaTile; }

// ---- rows

// Some rows of an operand: `count` of them, at most a tile.
template <typename T>
struct TileRows {
  const T* data;
  int64_t stride;
  int count;

  __device__ const T* Row(int i) const { return data + i * stride; }
};
__device__ inline int TileCount(int64_t rows, int64_t first) {
  return static_cast<int>(rows - first < kSdpaTile ? rows - first : kSdpaTile);
}
// The rows from `first` on of one head, of `rows` in all.
template <typename T>
__device__ inline TileRows<T> RowsOf(const SdpaOperand& x, int64_t batch, int64_t head,
                                     int64_t first, int64_t rows) {
  const T* const data = static_cast<const T*>(x.data);
  return {data + batch * x.batch + first * x.position + head * x.head, x.position,
          TileCount(rows, first)};
}

// Elements [column, column + kColumns) of rows [first, first + kRows), in the type U, with zeros
// for what lies beyond the rows and `columns`. By all kThreads of the block; `vectors`: rows are
// aligned and `columns` is a multiple of a vector.
template <int kRows, int kColumns, int kPitch, int kThreads, typename T, typename U>
__device__ inline void LoadTile(const TileRows<T>& x, int first, int64_t column, int64_t columns,
                                bool vectors, U* to) {
  constexpr int kN = kVector<T>;
  static_assert(kColumns % kN == 0);
  constexpr int kEach = kColumns / kN;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kEach; i += kThreads) {
    const int row = i / kEach, at = i % kEach * kN;
    const bool there = first + row < x.count;
    const T* const from = x.Row(first + row) + column + at;
    U* const dst = to + row * kPitch + at;
    if (vectors && there && column + at < columns) {
      const Vector<T> values = LoadVector(from);
#pragma unroll
      for (int n = 0; n < kN; ++n) dst[n] = static_cast<U>(Widen(values.v[n]));
    } else {
      for (int n = 0; n < kN; ++n) {
        dst[n] = there && column + at + n < columns ? static_cast<U>(Widen(from[n])) : U();
      }
    }
  }
}

// ---- the mask

__device__ inline KeyRange SdpaKeysOf(const GpuSdpa& f, int64_t query) {
  if (f.ranges != nullptr) return f.ranges[query];
  return KeysInDocument(f.causal, f.window, f.queries, f.keys, query);
}
// The keys of a range among those of the tile from `key` on, as [from, to).
struct SeenKeys {
  int from, to;
};
__device__ inline int InTile(int64_t at, int64_t key) {
  return static_cast<int>(at < key ? 0 : at - key < kSdpaTile ? at - key : kSdpaTile);
}
__device__ inline SeenKeys SeenIn(const KeyRange& keys, int64_t key) {
  return {InTile(keys.begin, key), InTile(keys.end, key)};
}

// The keys that the queries [first, first + count) see. Neither begins nor ends ever decrease.
__device__ inline KeyRange KeysOfTile(const GpuSdpa& f, int64_t first, int count) {
  return {SdpaKeysOf(f, first).begin, SdpaKeysOf(f, first + count - 1).end};
}

// Queries [begin, end): outside of them none sees a key of [key, key + count).
struct QueryRange {
  int64_t begin, end;
};
__device__ inline QueryRange QueriesOfTile(const GpuSdpa& f, int64_t key, int count) {
  int64_t low = 0, high = f.queries;
  while (low < high) {  // the first whose range ends after `key`
    const int64_t middle = low + (high - low) / 2;
    if (SdpaKeysOf(f, middle).end > key) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const int64_t begin = low;
  high = f.queries;
  while (low < high) {  // the first whose range begins after the keys
    const int64_t middle = low + (high - low) / 2;
    if (SdpaKeysOf(f, middle).begin >= key + count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {begin, low};
}

// ---- one pair

__device__ inline float SdpaExp(float x) { return expf(x); }
__device__ inline double SdpaExp(double x) { return exp(x); }
__device__ inline float SdpaLog(float x) { return logf(x); }
__device__ inline double SdpaLog(double x) { return log(x); }
__device__ inline float SdpaTanh(float x) { return tanhf(x); }
__device__ inline double SdpaTanh(double x) { return tanh(x); }
template <typename C>
__device__ inline C MinusInfinity() {
  return -static_cast<C>(INFINITY);
}

// The score of a product q · k, with its slope by the scaled product.
template <typename C>
struct SdpaScore {
  C front, behind;
  bool softcap;

  __device__ explicit SdpaScore(const GpuSdpa& f)
      : front(static_cast<C>(f.scales.front)),
        behind(static_cast<C>(f.scales.behind)),
        softcap(f.softcap) {}
  __device__ C Of(C product) const {
    const C x = product * front;
    return softcap ? behind * SdpaTanh(x) : x;
  }
  __device__ C Of(C product, C* slope) const {
    const C x = product * front;
    *slope = 1;
    if (!softcap) return x;
    const C t = SdpaTanh(x);
    *slope = behind * (1 - t * t);
    return behind * t;
  }
};

// What the gradient needs of a query: lse, sum(dy out), and the keys that it sees.
template <typename C>
struct QueryState {
  C lse = 0, delta = 0;
  KeyRange keys;
};

// The probability of a pair, and the gradient of its scaled product. Where they are rounded to 16
// bits a fast exponential is exact enough.
template <typename C>
struct PairGrad {
  C p, ds;
};
template <bool kFast = false, typename C>
__device__ inline PairGrad<C> GradOf(const SdpaScore<C>& score, C lse, C delta, bool seen,
                                     C product, C dp) {
  C slope;
  const C x = score.Of(product, &slope);
  C p = 0;
  if constexpr (kFast) {
    if (seen) p = __expf(x - lse);
  } else {
    if (seen) p = SdpaExp(x - lse);
  }
  return {p, p * (dp - delta) * slope};
}

// sum(dy out) of a row, by 16 neighbouring lanes; all get it.
inline constexpr int kDeltaLanes = 16;
template <typename T>
__device__ inline Compute<T> DeltaOf(const T* dy, const T* out, int64_t e) {
  Compute<T> sum = 0;
  for (int64_t c = threadIdx.x % kDeltaLanes; c < e; c += kDeltaLanes)
    sum += Widen(dy[c]) * Widen(out[c]);
  for (int step = kDeltaLanes / 2; step > 0; step /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

// The states of the queries from `first` on, into shared memory, and, where `seen` is given, which
// keys of the tile at `key` each sees. By all threads of the block; no barrier.
template <int kThreads, typename T>
__device__ inline void LoadQueryStates(const GpuSdpa& f, int64_t matrix, int64_t first,
                                       const TileRows<T>& dy, const TileRows<T>& out,
                                       QueryState<Compute<T>>* states, int64_t key = 0,
                                       SeenKeys* seen = nullptr) {
  using C = Compute<T>;
  for (int i = static_cast<int>(threadIdx.x) / kDeltaLanes; i < kSdpaTile;
       i += kThreads / kDeltaLanes) {
    const int row = i < dy.count ? i : 0;  // all lanes of a warp take part in the sum
    C delta = 0;
    if (f.delta == nullptr) delta = DeltaOf(dy.Row(row), out.Row(row), f.e);
    if (threadIdx.x % kDeltaLanes != 0) continue;
    QueryState<C> state;
    if (i < dy.count) state.keys = SdpaKeysOf(f, first + i);
    if (state.keys.begin < state.keys.end) {
      const int64_t at = matrix * f.queries + first + i;
      state.lse = static_cast<const C*>(f.grad.lse)[at];
      state.delta = f.delta != nullptr ? static_cast<const C*>(f.delta)[at] : delta;
    }
    states[i] = state;
    if (seen != nullptr) seen[i] = SeenIn(state.keys, key);
  }
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_SDPA_CUH_
