// Fused attention by plain arithmetic: every dtype, every size. A block of 16 by 16 threads makes a
// tile of scores, 4 x 4 a thread, and some columns of a result, over operands that pass through
// shared memory in pieces; its size does not depend on d and e.
#ifndef TALLY_OPS_SDPA_PLAIN_CUH_
#define TALLY_OPS_SDPA_PLAIN_CUH_

#include "tally/ops/sdpa.cuh"

namespace tally::gpu {
namespace plain {

inline constexpr int kSide = 16, kThreads = kSide * kSide;
inline constexpr int kOwn = kSdpaTile / kSide;  // rows, and columns, of scores of a thread

// Blocks that are to fit on a multiprocessor at once: what bounds the registers of a thread.
template <typename T>
inline constexpr int kBlocks = sizeof(Compute<T>) == 4 ? 2 : 1;

template <typename C>
struct Plain {
  static constexpr int kN = kVector<C>;
  static constexpr int kDepth = 128 / static_cast<int>(sizeof(C));    // of a piece of q · kᵀ
  static constexpr int kPitch = kDepth + kN;                          // no two rows on one bank
  static constexpr int kColumns = 512 / static_cast<int>(sizeof(C));  // of a result
  static constexpr int kOwnColumns = kColumns / kSide;
  static constexpr int kRows = 32;  // of what is multiplied into a result, a piece
  static constexpr int kWeightPitch = kSdpaTile + kN;
  static_assert(kRows * kColumns <= 2 * kSdpaTile * kPitch);

  QueryState<C> queries[kSdpaTile];
  alignas(16) C a[kSdpaTile * kPitch];
  C b[kSdpaTile * kPitch];
  alignas(16) C weights[kSdpaTile * kWeightPitch];  // probabilities or gradients of scores

  __device__ C* piece() { return a; }  // kRows x kColumns, over a and b
};

// A thread's part of a tile of scores: rows kOwn y + i, columns x + 16 j.
template <typename C>
using Scores = C[kOwn][kOwn];
// And of a result: rows kOwn y + i, columns from ColumnOf.
template <typename C>
using Result = C[kOwn][Plain<C>::kOwnColumns];

__device__ inline int Across() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ inline int Down() { return static_cast<int>(threadIdx.x) / kSide; }
template <typename C>
__device__ inline int ColumnOf(int j) {
  constexpr int kN = kVector<C>;
  return (Across() + kSide * (j / kN)) * kN + j % kN;
}

// x = a bᵀ over `depth` columns. Nobody reads shared memory any more when it begins or ends.
template <typename T, typename C>
__device__ inline void MultiplyRows(const TileRows<T>& a, const TileRows<T>& b, int64_t depth,
                                    bool aligned, Plain<C>& s, Scores<C>& x) {
  using P = Plain<C>;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) x[i][j] = 0;
  }
  for (int64_t column = 0; column < depth; column += P::kDepth) {
    LoadTile<kSdpaTile, P::kDepth, P::kPitch, kThreads>(a, 0, column, depth, aligned, s.a);
    LoadTile<kSdpaTile, P::kDepth, P::kPitch, kThreads>(b, 0, column, depth, aligned, s.b);
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < P::kDepth; k += P::kN) {
      Vector<C> left[kOwn], right[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        left[i] = LoadVector(s.a + (kOwn * Down() + i) * P::kPitch + k);
        right[i] = LoadVector(s.b + (Across() + kSide * i) * P::kPitch + k);
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
#pragma unroll
          for (int n = 0; n < P::kN; ++n) x[i][j] += left[i].v[n] * right[j].v[n];
        }
      }
    }
    __syncthreads();
  }
}

// Adds weights · b, of which the columns [column, column + kColumns) count. The weights may have
// been written just before.
template <typename T, typename C>
__device__ inline void AddProduct(const TileRows<T>& b, int64_t column, int64_t columns,
                                  bool aligned, Plain<C>& s, Result<C>& sum) {
  using P = Plain<C>;
  for (int first = 0; first < b.count; first += P::kRows) {
    LoadTile<P::kRows, P::kColumns, P::kColumns, kThreads>(b, first, column, columns, aligned,
                                                           s.piece());
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < P::kRows; k += P::kN) {
      Vector<C> left[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        left[i] = LoadVector(s.weights + (kOwn * Down() + i) * P::kWeightPitch + first + k);
#pragma unroll
      for (int n = 0; n < P::kN; ++n) {
#pragma unroll
        for (int j = 0; j < P::kOwnColumns; j += P::kN) {
          const Vector<C> right = LoadVector(s.piece() + (k + n) * P::kColumns + ColumnOf<C>(j));
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
#pragma unroll
            for (int m = 0; m < P::kN; ++m) sum[i][j + m] += left[i].v[n] * right.v[m];
          }
        }
      }
    }
    __syncthreads();
  }
}

template <typename C>
__device__ inline void Clear(Result<C>& sum) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < Plain<C>::kOwnColumns; ++j) sum[i][j] = 0;
  }
}

// Columns [column, ...) of rows `stride` elements apart, `count` of them.
template <typename T, typename C>
__device__ inline void StoreResult(const Result<C>& sum, const C (&factor)[kOwn], T* to,
                                   int64_t stride, int count, int64_t column, int64_t columns) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int row = kOwn * Down() + i;
    if (row >= count) continue;
#pragma unroll
    for (int j = 0; j < Plain<C>::kOwnColumns; ++j) {
      const int64_t at = column + ColumnOf<C>(j);
      if (at < columns) to[row * stride + at] = Narrow<T>(sum[i][j] * factor[i]);
    }
  }
}

// Pieces of columns of a result, at least one.
template <typename C>
inline int64_t ChunksOf(int64_t columns) {
  const int64_t chunks = (columns + Plain<C>::kColumns - 1) / Plain<C>::kColumns;
  return chunks > 0 ? chunks : 1;
}

}  // namespace plain
}  // namespace tally::gpu

#endif  // TALLY_OPS_SDPA_PLAIN_CUH_
