// Convolution as a product on tensor cores: four warps, each with 32 x 32 elements of a tile.
#include "tally/ops/conv_tile.cuh"
#include "tally/ops/tile_tensor.cuh"

namespace tally::gpu {
namespace {

using tensor::Lies;
using Shape = tensor::TileShape<2, 2, 2, 2, Lies::kByDepth, Lies::kBySide>;
template <typename T>
using Tile = tensor::TensorTile<T, Shape>;

template <ConvOf kOf, typename T>
__global__ void __launch_bounds__(Tile<T>::kThreads)
    ConvTensorKernel(GpuConv f, ConvExtent size, int64_t pieces) {
  ConvByTiles<kOf, Tile<T>>(f, size, pieces);
}

}  // namespace

GpuError LaunchConvTensor(const GpuCall& call, ConvOf of, const GpuConv& f) {
  return VisitConv(of, [&](auto constant) {
    constexpr ConvOf kOf = constant;
    const int64_t pieces = ConvPieces<kOf>(f.g, f.splits);
    const auto launch = [&](auto element) {
      using T = decltype(element);
      return Launch(ConvTensorKernel<kOf, T>, GridForPieces(pieces), Tile<T>::kThreads,
                    sizeof(ConvMemory<Tile<T>>), call, f, ExtentOf<kOf>(f.g), pieces);
    };
    return f.dtype == DType::kBF16 ? launch(BF16{}) : launch(F16{});
  });
}

}  // namespace tally::gpu
