// Convolution as a product, by plain arithmetic.
#include "tally/ops/conv_tile.cuh"

namespace tally::gpu {
namespace {

template <ConvOf kOf, typename T>
__global__ void __launch_bounds__(PlainTile<T>::kThreads)
    ConvKernel(GpuConv f, ConvExtent size, int64_t pieces) {
  ConvByTiles<kOf, PlainTile<T>>(f, size, pieces);
}

}  // namespace

GpuError LaunchConvPlain(const GpuCall& call, ConvOf of, const GpuConv& f) {
  return VisitConv(of, [&](auto constant) {
    constexpr ConvOf kOf = constant;
    const int64_t pieces = ConvPieces<kOf>(f.g, f.splits);
    const auto launch = [&](auto element) {
      using T = decltype(element);
      return Launch(ConvKernel<kOf, T>, GridForPieces(pieces), PlainTile<T>::kThreads,
                    sizeof(ConvMemory<PlainTile<T>>), call, f, ExtentOf<kOf>(f.g), pieces);
    };
    return f.dtype == DType::kF64 ? launch(double{}) : launch(float{});
  });
}

}  // namespace tally::gpu
