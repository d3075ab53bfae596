// Products of groups of rows on tensor cores: eight warps, each with 32 x 64 elements of a tile. An
// operand lies in shared memory as it mostly does outside.
#include "tally/ops/grouped_matmul.cuh"
#include "tally/ops/tile_tensor.cuh"

namespace tally::gpu {
namespace {

using tensor::Lies;
template <typename T, Lies kLeft, Lies kRight>
using Tile = tensor::TensorTile<T, tensor::TileShape<4, 2, 2, 4, kLeft, kRight>>;

constexpr int kThreads = Tile<BF16, Lies::kByDepth, Lies::kByDepth>::kThreads;
constexpr int kBlocks = 2;  // at least, of a multiprocessor: one loads, one multiplies

template <typename T, Lies kRight>
using ProductTile = Tile<T, Lies::kByDepth, kRight>;
template <typename T, Lies kRight>
__global__ void __launch_bounds__(kThreads, kBlocks) ProductTensorKernel(GpuGroups g) {
  ProductByTiles<ProductTile<T, kRight>>(g);
}

template <typename T>
using OuterTile = Tile<T, Lies::kBySide, Lies::kBySide>;
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) OuterTensorKernel(GpuGroups g) {
  OuterByTiles<OuterTile<T>>(g);
}

template <typename T, Lies kRight>
GpuError LaunchProduct(const GpuCall& call, const GpuGroups& g) {
  using Tile = ProductTile<T, kRight>;
  return Launch(ProductTensorKernel<T, kRight>, GridForPieces(ProductTasks<Tile>(g)), kThreads,
                Tile::kBytes, call, g);
}

template <typename Fn>
GpuError Visit(DType dtype, const Fn& fn) {
  return dtype == DType::kBF16 ? fn(BF16{}) : fn(F16{});
}

}  // namespace

GpuError LaunchGroupedProductTensor(const GpuCall& call, const GpuGroups& g) {
  return Visit(g.dtype, [&](auto element) {
    using T = decltype(element);
    return g.b_column == 1 ? LaunchProduct<T, Lies::kBySide>(call, g)
                           : LaunchProduct<T, Lies::kByDepth>(call, g);
  });
}

GpuError LaunchGroupedOuterTensor(const GpuCall& call, const GpuGroups& g) {
  return Visit(g.dtype, [&](auto element) {
    using T = decltype(element);
    using Tile = OuterTile<T>;
    return Launch(OuterTensorKernel<T>, GridForPieces(OuterTasks<Tile>(g)), kThreads, Tile::kBytes,
                  call, g);
  });
}

}  // namespace tally::gpu
