// Rows and lines in a block's threads: what the kernels that normalise and reduce share.
//
// A row lies together and is worked on by one block, 16 bytes at a time where its place allows. A
// line is [n] of x [outer, n, inner]: neighbours lie side by side, and a block takes `columns` of
// them at a time. Sums run in double from one piece of a thread to the next, so that their error
// does not grow with the row.
#ifndef TALLY_OPS_ROWS_CUH_
#define TALLY_OPS_ROWS_CUH_

#include <limits>
#include <type_traits>

#include "tally/ops/lane_gpu.cuh"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

// ---- rows

inline constexpr int kMaxRowBlock = 512;

// Threads for rows of n elements: two pieces each, where there are as many.
template <typename T>
int RowBlock(int64_t n) {
  int block = kWarp;
  while (block < kMaxRowBlock && block * 4 * kVector<T> <= n) block *= 2;
  return block;
}

// Elements [0, head) and [tail, n) of a row are taken one by one, those between by vectors.
struct RowSplit {
  int64_t n, head, tail;
};

// Elements since the last place that is aligned to 16 bytes.
template <typename T>
__device__ inline int64_t Misalignment(const T* p) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
}
// For a row at `p` and others that are read or written at the same positions. Vectors want all of
// them in the same place relative to 16 bytes; null ones do not matter.
template <typename T, typename... P>
__device__ inline RowSplit SplitRow(int64_t n, const T* p, const P*... others) {
  const int64_t at = Misalignment(p);
  if (!((others == nullptr || Misalignment(others) == at) && ...)) return {n, n, n};
  int64_t head = at == 0 ? 0 : kVector<T> - at;
  if (head > n) head = n;
  return {n, head, head + (n - head) / kVector<T> * kVector<T>};
}

template <int kN>
using Few = std::integral_constant<int, kN>;

// fn(i, Few<kN>()) for the pieces of a row that fall to this thread: elements [i, i + kN).
template <typename T, class Fn>
__device__ inline void ForPieces(const RowSplit& row, const Fn& fn) {
  constexpr int kN = kVector<T>;
  for (int64_t i = row.head + int64_t{threadIdx.x} * kN; i < row.tail;
       i += int64_t{blockDim.x} * kN) {
    fn(i, Few<kN>());
  }
  const int64_t singles = row.head + row.n - row.tail;
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < singles; i += blockDim.x) {
    fn(i < row.head ? i : i - row.head + row.tail, Few<1>());
  }
}

// Rows kept in shared memory between passes over them: where they lie, each thread reads what it
// wrote. Behind the scratch of reductions.
inline constexpr size_t kRowScratch = sizeof(double) * kMaxRowBlock / kWarp;
inline constexpr size_t kMostKept = 40 * 1024;  // bytes, so that some blocks share a multiprocessor

template <typename T>
__host__ __device__ inline int64_t KeptBytes(int64_t n) {
  return (n * static_cast<int64_t>(sizeof(T)) + 31) / 16 * 16;
}
template <typename T>
bool CanKeep(int64_t n, int rows) {
  return n <= static_cast<int64_t>(kMostKept) && rows * KeptBytes<T>(n) <= int64_t{kMostKept};
}
// Bytes of shared memory for a kernel that keeps so many rows if it can.
template <typename T>
size_t RowShared(int64_t n, int rows) {
  return kRowScratch + (CanKeep<T>(n, rows) ? static_cast<size_t>(rows * KeptBytes<T>(n)) : 0);
}
// Where kept row `index` of n elements begins, aligned as `like` is.
template <typename T>
__device__ inline T* KeptRow(int64_t n, int index, const T* like) {
  char* const place = Shared<char>() + kRowScratch + index * KeptBytes<T>(n);
  return reinterpret_cast<T*>(place) + Misalignment(like);
}

template <typename T>
__device__ inline void FillRow(T* p, int64_t n, T value) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) p[i] = value;
}

// ---- lines

struct LineGrid {
  int columns = 1;  // lines of a block, a power of two up to a warp
  int block = kWarp;
  unsigned grid = 0;
};
// For `lines` lines of n elements; whether neighbours lie side by side.
inline LineGrid LinesFor(const GpuCall& call, int64_t lines, int64_t n, bool side_by_side) {
  LineGrid g;
  while (side_by_side && g.columns < kWarp && g.columns < lines) g.columns *= 2;
  while (g.block < kBlock && g.block / g.columns < n) g.block *= 2;
  g.grid = GridForRows(call, (lines + g.columns - 1) / g.columns);
  return g;
}
template <typename V>
size_t LineShared(const LineGrid& g) {
  return sizeof(V) * static_cast<size_t>(g.block / kWarp * g.columns);
}

// A thread's place among the lines of its block: it takes positions lane, lane + lanes, ...
struct LinePlace {
  int column, lane, lanes;
};
__device__ inline LinePlace PlaceInLines(int columns) {
  const int thread = static_cast<int>(threadIdx.x);
  return {thread % columns, thread / columns, static_cast<int>(blockDim.x) / columns};
}
// Where line `line` of [outer, n, inner] begins.
__device__ inline int64_t LineBegin(int64_t line, int64_t n, int64_t inner) {
  return line / inner * n * inner + line % inner;
}

template <typename V>
__device__ inline V ShuffleXor(V value, int step) {
  return __shfl_xor_sync(0xffffffffu, value, step);
}

// Combines the threads of each column; all of them get the result. `scratch` as LineShared says;
// with one column it is BlockReduce.
template <typename V, typename Fn>
__device__ inline V LinesReduce(V value, Fn fn, int columns, V* scratch) {
  for (int step = kWarp / 2; step >= columns; step /= 2) {
    value = fn(value, ShuffleXor(value, step));
  }
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane < columns) scratch[static_cast<int>(threadIdx.x) / kWarp * columns + lane] = value;
  __syncthreads();
  V total = scratch[lane % columns];
  for (int w = 1; w < warps; ++w) total = fn(total, scratch[w * columns + lane % columns]);
  __syncthreads();
  return total;
}

// ---- sums of exponentials

// The greatest of some values and the sum of e^(value - greatest), in one pass over them.
template <typename C>
struct MaxSum {
  C top = -std::numeric_limits<C>::infinity();
  double sum = 0;

  template <int kN>
  __device__ void Add(const C* x) {
    C best = top;
    for (int j = 0; j < kN; ++j) best = Greater()(best, x[j]);
    if (best != top) {
      sum *= static_cast<double>(ExpOf(top - best));
      top = best;
    }
    if (top == -std::numeric_limits<C>::infinity()) return;
    C part = 0;
    for (int j = 0; j < kN; ++j) part += ExpOf(x[j] - top);
    sum += static_cast<double>(part);
  }
  // Of all threads of a column.
  __device__ void Combine(int columns, double* scratch) {
    const C best = LinesReduce(top, Greater(), columns, reinterpret_cast<C*>(scratch));
    sum = LinesReduce(Share(best), Plus(), columns, scratch);
    top = best;
  }
  // Of these values and others.
  __device__ MaxSum With(const MaxSum& other) const {
    const C best = Greater()(top, other.top);
    return {best, Share(best) + other.Share(best)};
  }
  // The sum with a greater value for the greatest.
  __device__ double Share(C best) const {
    return sum == 0 ? 0.0 : sum * static_cast<double>(ExpOf(top - best));
  }
  // log of the sum of e^value. An infinite top is the result: inf - inf would be NaN.
  __device__ C LogSum() const {
    if (top - top != 0) return top;  // infinite or NaN
    return top + LogOf(static_cast<C>(sum));
  }
};
template <typename C>
__device__ inline MaxSum<C> ShuffleXor(const MaxSum<C>& a, int step) {
  return {__shfl_xor_sync(0xffffffffu, a.top, step), __shfl_xor_sync(0xffffffffu, a.sum, step)};
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_ROWS_CUH_
