// Convolution as a product, by tiles of either kind: what goes into them, and the kernel.
#ifndef TALLY_OPS_CONV_TILE_CUH_
#define TALLY_OPS_CONV_TILE_CUH_

#include "tally/ops/conv.cuh"
#include "tally/ops/tile.cuh"

namespace tally::gpu {

template <typename Tile>
struct ConvMemory {
  static_assert(Tile::kRows == kConvTile && Tile::kColumns == kConvTile);
  ConvColumn columns[Tile::kColumns];
  ConvDepth depth[Tile::kDepth];  // of this step, then of the next
  alignas(32) unsigned char tile[Tile::kBytes];
};

template <ConvOf kOf, typename Tile>
struct ConvLoader {
  using T = typename Tile::Element;
  using Item = typename Tile::Item;

  const GpuConv& f;
  const ConvExtent& size;
  const ConvPiece& p;
  const ConvRows& rows;
  ConvMemory<Tile>& s;
  int64_t first = 0;

  __device__ void Fetch(int64_t at) {
    first = at;
    const int t = static_cast<int>(threadIdx.x);
    if (t < Tile::kDepth) s.depth[t] = DepthOf<kOf>(f.g, p.group, first + t, p.end);
  }

  __device__ void Put(Item* left, Item* right) const {
    constexpr int kItems = kConvTile * Tile::kDepth;
    const T* const from = LeftOf<kOf, T>(f) + rows.left;
    for (int i = static_cast<int>(threadIdx.x); i < kItems; i += Tile::kThreads) {
      const int k = i % Tile::kDepth, m = i / Tile::kDepth;
      const bool there = p.row + m < size.rows && first + k < p.end;
      left[m * Tile::kLeftRow + k * Tile::kLeftDepth] =
          there ? from[(p.row + m) * rows.left_stride + s.depth[k].left] : T(0.0f);
    }
    const T* const plane = GatheredOf<kOf, T>(f);
    for (int i = static_cast<int>(threadIdx.x); i < kItems; i += Tile::kThreads) {
      // Neighbouring threads read neighbouring pixels.
      const int k = kOf == ConvOf::kWeightGrad ? i % Tile::kDepth : i / kConvTile;
      const int n = kOf == ConvOf::kWeightGrad ? i / Tile::kDepth : i % kConvTile;
      right[k * Tile::kRightDepth + n * Tile::kRightColumn] =
          Gathered<kOf>(f.g, plane, s.depth[k], s.columns[n]);
    }
  }
};

template <ConvOf kOf, typename Tile>
__device__ inline void ConvByTiles(const GpuConv& f, const ConvExtent& size, int64_t pieces) {
  auto& s = *Shared<ConvMemory<Tile>>();
  const int t = static_cast<int>(threadIdx.x);
  Tile tile(s.tile);
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const ConvPiece p = PieceOf<kOf>(f.g, size, piece, f.splits, Tile::kDepth);
    const ConvRows rows = RowsOf<kOf>(f.g, p.group);
    if (t < kConvTile) s.columns[t] = ColumnOf<kOf>(f.g, p.group, p.column + t, size.columns);
    ConvLoader<kOf, Tile> loader{f, size, p, rows, s};
    SumOver(p.begin, p.end, loader, tile);
    tile.template ForEach<1>([&](int row, int at, const Compute<typename Tile::Element>* sum) {
      const ConvColumn& column = s.columns[at];
      if (p.row + row >= size.rows || column.result < 0) return;
      StoreConv<kOf, typename Tile::Element>(f, p, rows, p.row + row, column, *sum);
    });
    __syncthreads();  // before the entries are made again
  }
}

// launch(std::integral_constant<ConvOf, of>)
template <typename Fn>
GpuError VisitConv(ConvOf of, const Fn& launch) {
  switch (of) {
    case ConvOf::kForward:
      return launch(std::integral_constant<ConvOf, ConvOf::kForward>{});
    case ConvOf::kInputGrad:
      return launch(std::integral_constant<ConvOf, ConvOf::kInputGrad>{});
    default:
      return launch(std::integral_constant<ConvOf, ConvOf::kWeightGrad>{});
  }
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_CONV_TILE_CUH_
