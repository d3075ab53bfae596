// Convolution as a product on tensor cores, of bf16 and f16: four warps, each 32 x 32 elements of a
// tile of the result, sums in f32.
#include <mma.h>

#include "tally/ops/conv.cuh"

namespace tally::gpu {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kThreads = 4 * kWarp;
constexpr int kSide = 16;   // of a fragment
constexpr int kDepth = 32;  // at a time
// Pitches: neighbouring rows begin on other banks.
constexpr int kLeftPitch = kDepth + 8, kPitch = kConvTile + 8;

template <typename T>
struct ConvTiles {
  ConvColumn columns[kConvTile];
  ConvDepth depth[2][kDepth];  // of this step and the next
  union Memory {
    struct Operands {
      T left[kConvTile * kLeftPitch];
      T gathered[kDepth * kPitch];
    } in;
    float result[kConvTile * kPitch];
  };
  alignas(32) unsigned char memory[sizeof(Memory)];

  __device__ T* left() { return reinterpret_cast<T*>(memory); }
  __device__ T* gathered() { return left() + kConvTile * kLeftPitch; }
  __device__ float* result() { return reinterpret_cast<float*>(memory); }
};

template <ConvOf kOf, typename T>
__global__ void __launch_bounds__(kThreads)
    ConvTensorKernel(GpuConv f, ConvExtent size, int64_t pieces) {
  using E = std::conditional_t<std::is_same_v<T, BF16>, __nv_bfloat16, __half>;
  ConvTiles<T>& s = *Shared<ConvTiles<T>>();
  const int t = static_cast<int>(threadIdx.x), warp = t / kWarp;
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const ConvPiece p = PieceOf<kOf>(f.g, size, piece, f.splits, kDepth);
    const ConvRows rows = RowsOf<kOf>(f.g, p.group);
    if (t < kConvTile) s.columns[t] = ColumnOf<kOf>(f.g, p.group, p.column + t, size.columns);
    if (t < kDepth) s.depth[0][t] = DepthOf<kOf>(f.g, p.group, p.begin + t, p.end);
    __syncthreads();
    wmma::fragment<wmma::accumulator, kSide, kSide, kSide, float> sum[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    int now = 0;
    for (int64_t first = p.begin; first < p.end; first += kDepth, now ^= 1) {
      LoadConvTiles<kOf, kDepth, kThreads, kLeftPitch, 1, kPitch, T>(
          f, p, rows, size, first, s.depth[now], s.columns, s.left(), s.gathered());
      if (t < kDepth) {
        s.depth[now ^ 1][t] = DepthOf<kOf>(f.g, p.group, first + kDepth + t, p.end);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDepth; k += kSide) {
        wmma::fragment<wmma::matrix_a, kSide, kSide, kSide, E, wmma::row_major> a[2];
        wmma::fragment<wmma::matrix_b, kSide, kSide, kSide, E, wmma::row_major> b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          wmma::load_matrix_sync(
              a[i], reinterpret_cast<const E*>(s.left() + (warp_row + kSide * i) * kLeftPitch + k),
              kLeftPitch);
          wmma::load_matrix_sync(
              b[i], reinterpret_cast<const E*>(s.gathered() + k * kPitch + warp_column + kSide * i),
              kPitch);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          wmma::mma_sync(sum[i / 2][i % 2], a[i / 2], b[i % 2], sum[i / 2][i % 2]);
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      wmma::store_matrix_sync(
          s.result() + (warp_row + i / 2 * kSide) * kPitch + warp_column + i % 2 * kSide,
          sum[i / 2][i % 2], kPitch, wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = t; i < kConvTile * kConvTile; i += kThreads) {
      const int row = i / kConvTile, at = i % kConvTile;
      const ConvColumn& column = s.columns[at];
      if (p.row + row < size.rows && column.result >= 0) {
        StoreConv<kOf, T>(f, p, rows, p.row + row, column, s.result()[row * kPitch + at]);
      }
    }
    __syncthreads();  // before the entries are made again
  }
}

template <ConvOf kOf>
GpuError LaunchOf(const GpuCall& call, const GpuConv& f) {
  const int64_t pieces = ConvPieces<kOf>(f.g, f.splits);
  const auto launch = [&](auto element) {
    using T = decltype(element);
    return Launch(ConvTensorKernel<kOf, T>, GridForPieces(pieces), kThreads, sizeof(ConvTiles<T>),
                  call, f, ExtentOf<kOf>(f.g), pieces);
  };
  return f.dtype == DType::kBF16 ? launch(BF16{}) : launch(F16{});
}

}  // namespace

GpuError LaunchConvTensor(const GpuCall& call, ConvOf of, const GpuConv& f) {
  switch (of) {
    case ConvOf::kForward:
      return LaunchOf<ConvOf::kForward>(call, f);
    case ConvOf::kInputGrad:
      return LaunchOf<ConvOf::kInputGrad>(call, f);
    default:
      return LaunchOf<ConvOf::kWeightGrad>(call, f);
  }
}

}  // namespace tally::gpu
