// Fused attention on tensor cores: bf16 and f16, d and e multiples of 16. Four warps, each with 16
// rows of a tile of scores; probabilities and their gradients are rounded to the operands' type
// before the products they go into, sums are f32.
//
// Where a lane finds an element of an accumulator is open, but the same for all of one type: each
// kernel asks by loading a matrix of positions (Places).
#ifndef TALLY_OPS_SDPA_TENSOR_CUH_
#define TALLY_OPS_SDPA_TENSOR_CUH_

#include "tally/ops/sdpa.cuh"
#include "tally/ops/tile_tensor.cuh"

namespace tally::gpu {
namespace tensor {

inline constexpr int kWarps = 4, kThreads = kWarps * kWarp;
inline constexpr int kParts = kSdpaTile / kSide;
static_assert(kWarps == kParts);
inline constexpr int kScorePitch = kSdpaTile + 8;
inline constexpr int kWarpScores = kSide * kScorePitch;
inline constexpr int kMostColumns = 128;  // of a result: its sums stay in registers

template <typename T>
using Left = Operand<wmma::matrix_a, Native<T>, wmma::row_major>;
template <typename T>
using Right = Operand<wmma::matrix_b, Native<T>, wmma::row_major>;
template <typename T>
using RightTransposed = Operand<wmma::matrix_b, Native<T>, wmma::col_major>;
inline constexpr int kElements = Sum::num_elements;

// Row and column of each element that this lane holds.
struct Places {
  int at[kElements];
  __device__ int row(int i) const { return at[i] / kSide; }
  __device__ int column(int i) const { return at[i] % kSide; }

  // `matrix`: memory of the warp, for kSide x kSide floats.
  __device__ explicit Places(float* matrix) {
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kSide * kSide; i += kWarp)
      matrix[i] = static_cast<float>(i);
    __syncwarp();
    Sum sum;
    wmma::load_matrix_sync(sum, matrix, kSide, wmma::mem_row_major);
#pragma unroll
    for (int i = 0; i < kElements; ++i) at[i] = static_cast<int>(sum.x[i]);
    __syncwarp();
  }
};

// Columns [column, column + columns) of a tile of rows; zeros beyond the rows. By the whole block.
template <typename T>
__device__ inline void LoadRows(const TileRows<T>& x, int64_t column, int columns, bool aligned,
                                T* to, int pitch) {
  constexpr int kN = kVector<T>;
  const int each = columns / kN;
  for (int i = static_cast<int>(threadIdx.x); i < kSdpaTile * each; i += kThreads) {
    const int row = i / each, at = i % each * kN;
    Vector<T> values;
    if (row >= x.count) {
      for (int n = 0; n < kN; ++n) values.v[n].bits = 0;
    } else if (aligned) {
      values = LoadVector(x.Row(row) + column + at);
    } else {
      for (int n = 0; n < kN; ++n) values.v[n] = x.Row(row)[column + at + n];
    }
    StoreVector(to + row * pitch + at, values);
  }
}

// Of steps in depth: few registers where loads are many.
constexpr int kUnrollOf(LoadAs as) { return as == LoadAs::kF16 ? 4 : 1; }

// x[n] = a · bᵀ: 16 rows of a, rows [16 n, 16 n + 16) of b.
template <int kN, typename T>
__device__ inline void MultiplyRows(bool as_f16, const T* a, const T* b, int pitch, int depth,
                                    Sum (&x)[kN]) {
  for (int n = 0; n < kN; ++n) wmma::fill_fragment(x[n], 0.0f);
  VisitLoad<T>(as_f16, [&](auto as) {
#pragma unroll kUnrollOf(as)
    for (int k = 0; k < depth; k += kSide) {
      Left<T> left;
      LoadOperand<as>(left, a + k, pitch);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        RightTransposed<T> right;
        LoadOperand<as>(right, b + n * kSide * pitch + k, pitch);
        wmma::mma_sync(x[n], left, right, x[n]);
      }
    }
  });
}

// sum += weights · b: a tile of 16 rows of weights, a tile of rows of b.
template <int kN, typename T>
__device__ inline void AddProduct(bool as_f16, const T* weights, const T* b, int pitch, int columns,
                                  Sum (&sum)[kN]) {
  VisitLoad<T>(as_f16, [&](auto as) {
#pragma unroll kUnrollOf(as)
    for (int k = 0; k < kParts; ++k) {
      Left<T> left;
      LoadOperand<as>(left, weights + k * kSide, kScorePitch);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        if (n * kSide >= columns) break;
        Right<T> right;
        LoadOperand<as>(right, b + k * kSide * pitch + n * kSide, pitch);
        wmma::mma_sync(sum[n], left, right, sum[n]);
      }
    }
  });
}

template <int kN>
__device__ inline void Clear(Sum (&sum)[kN]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) wmma::fill_fragment(sum[n], 0.0f);
}

// 16 rows of a result, of which `rows` are there, by way of the warp's kWarpScores floats.
template <int kN, typename T>
__device__ inline void StoreRows(const Sum (&sum)[kN], float factor, float* buffer, T* to,
                                 int64_t stride, int rows, int columns) {
  constexpr int kV = kVector<T>;
#pragma unroll
  for (int first = 0; first < kN; first += kParts) {
    if (first * kSide >= columns) break;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kParts; ++n) {
      wmma::store_matrix_sync(buffer + n * kSide, sum[first + n], kScorePitch, wmma::mem_row_major);
    }
    __syncwarp();
    for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kSide * kSdpaTile / kV; i += kWarp) {
      const int row = i / (kSdpaTile / kV), at = i % (kSdpaTile / kV) * kV;
      if (row >= rows || first * kSide + at >= columns) continue;
      Vector<T> values;
      for (int n = 0; n < kV; ++n)
        values.v[n] = Narrow<T>(buffer[row * kScorePitch + at + n] * factor);
      StoreVector(to + row * stride + first * kSide + at, values);
    }
  }
  __syncwarp();
}

// fn(T{}, fragments of a row) with T = BF16 or F16, for results of so many columns.
template <typename Fn>
GpuError VisitTensor(DType dtype, int64_t columns, const Fn& fn) {
  using Narrow4 = std::integral_constant<int, 4>;
  using Wide8 = std::integral_constant<int, kMostColumns / kSide>;
  if (dtype == DType::kBF16) return columns <= 64 ? fn(BF16{}, Narrow4{}) : fn(BF16{}, Wide8{});
  return columns <= 64 ? fn(F16{}, Narrow4{}) : fn(F16{}, Wide8{});
}

inline bool Sixteens(const GpuSdpa& f) {
  return (f.dtype == DType::kBF16 || f.dtype == DType::kF16) && f.d > 0 && f.e > 0 &&
         f.d % kSide == 0 && f.e % kSide == 0;
}

}  // namespace tensor
}  // namespace tally::gpu

#endif  // TALLY_OPS_SDPA_TENSOR_CUH_
