// Convolution as a product, by plain arithmetic: 16 by 16 threads, each 4 x 4 elements of a tile of
// the result.
#include "tally/ops/conv.cuh"

namespace tally::gpu {
namespace {

constexpr int kSide = 16, kThreads = kSide * kSide;
constexpr int kOwn = kConvTile / kSide;
constexpr int kDepth = 16;  // at a time

template <typename C>
struct ConvTiles {
  static constexpr int kN = kVector<C>;
  static constexpr int kPitch = kConvTile + kN;

  ConvColumn columns[kConvTile];
  ConvDepth depth[2][kDepth];  // of this step and the next
  alignas(16) C left[kDepth * kPitch];
  C gathered[kDepth * kPitch];
};

template <ConvOf kOf, typename T>
__global__ void __launch_bounds__(kThreads) ConvKernel(GpuConv f, ConvExtent size, int64_t pieces) {
  using C = Compute<T>;
  using Tiles = ConvTiles<C>;
  constexpr int kN = Tiles::kN, kPitch = Tiles::kPitch;
  Tiles& s = *Shared<Tiles>();
  const int t = static_cast<int>(threadIdx.x), across = t % kSide, down = t / kSide;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const ConvPiece p = PieceOf<kOf>(f.g, size, piece, f.splits, kDepth);
    const ConvRows rows = RowsOf<kOf>(f.g, p.group);
    if (t < kConvTile) s.columns[t] = ColumnOf<kOf>(f.g, p.group, p.column + t, size.columns);
    if (t < kDepth) s.depth[0][t] = DepthOf<kOf>(f.g, p.group, p.begin + t, p.end);
    __syncthreads();
    C sum[kOwn][kOwn] = {};
    int now = 0;
    for (int64_t first = p.begin; first < p.end; first += kDepth, now ^= 1) {
      LoadConvTiles<kOf, kDepth, kThreads, 1, kPitch, kPitch, T>(
          f, p, rows, size, first, s.depth[now], s.columns, s.left, s.gathered);
      if (t < kDepth) {
        s.depth[now ^ 1][t] = DepthOf<kOf>(f.g, p.group, first + kDepth + t, p.end);
      }
      __syncthreads();
#pragma unroll 4
      for (int k = 0; k < kDepth; ++k) {
        C a[kOwn], b[kOwn];
#pragma unroll
        for (int i = 0; i < kOwn; i += kN) {
          const Vector<C> x = LoadVector(s.left + k * kPitch + kOwn * down + i);
          const Vector<C> y = LoadVector(s.gathered + k * kPitch + kOwn * across + i);
#pragma unroll
          for (int n = 0; n < kN; ++n) a[i + n] = x.v[n], b[i + n] = y.v[n];
        }
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
          for (int j = 0; j < kOwn; ++j) sum[i][j] += a[i] * b[j];
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t row = p.row + kOwn * down + i;
      if (row >= size.rows) continue;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const ConvColumn& column = s.columns[kOwn * across + j];
        if (column.result >= 0) StoreConv<kOf, T>(f, p, rows, row, column, sum[i][j]);
      }
    }
    __syncthreads();  // before the entries are made again
  }
}

template <ConvOf kOf>
GpuError LaunchOf(const GpuCall& call, const GpuConv& f) {
  const int64_t pieces = ConvPieces<kOf>(f.g, f.splits);
  return VisitFloat(f.dtype, [&](auto element) {
    using T = decltype(element);
    return Launch(ConvKernel<kOf, T>, GridForPieces(pieces), kThreads,
                  sizeof(ConvTiles<Compute<T>>), call, f, ExtentOf<kOf>(f.g), pieces);
  });
}

}  // namespace

GpuError LaunchConvPlain(const GpuCall& call, ConvOf of, const GpuConv& f) {
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
