// Products of groups of rows by plain arithmetic, and which kernels run.
#include "tally/ops/grouped_matmul.cuh"

namespace tally::gpu {
namespace {

__global__ void CheckOffsetsKernel(GpuCall call, GpuGroups g) {
  for (int64_t e = GlobalThread(); e <= g.groups; e += GlobalThreads()) {
    const int64_t at = g.offsets[e];
    const bool fits = (e > 0 ? at >= g.offsets[e - 1] : at == 0) && (e < g.groups || at == g.rows);
    if (!fits) Raise(call.fault, GpuFault::kOffsets, 2, at, g.rows);
  }
}
GpuError Check(const GpuCall& call, const GpuGroups& g) {
  return Launch(CheckOffsetsKernel, GridFor(call, g.groups + 1), kBlock, 0, call, call, g);
}

template <typename T>
__global__ void __launch_bounds__(PlainTile<T>::kThreads) ProductKernel(GpuGroups g) {
  ProductByTiles<PlainTile<T>>(g);
}
template <typename T>
__global__ void __launch_bounds__(PlainTile<T>::kThreads) OuterKernel(GpuGroups g) {
  OuterByTiles<PlainTile<T>>(g);
}

bool OnTensorCores(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchGroupedProduct(const GpuCall& call, const GpuGroups& g) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const GpuError error = Check(call, g);
  if (error != cudaSuccess || g.rows == 0 || g.groups == 0) return error;
  if (OnTensorCores(g.dtype)) return LaunchGroupedProductTensor(call, g);
  const auto launch = [&](auto element) {
    using Tile = PlainTile<decltype(element)>;
    return Launch(ProductKernel<decltype(element)>, GridForPieces(ProductTasks<Tile>(g)),
                  Tile::kThreads, Tile::kBytes, call, g);
  };
  return g.dtype == DType::kF64 ? launch(double{}) : launch(float{});
}

GpuError LaunchGroupedOuter(const GpuCall& call, const GpuGroups& g) {
  using namespace gpu;  // NOLINT: what kernels are made of
  const GpuError error = Check(call, g);
  if (error != cudaSuccess) return error;
  if (OnTensorCores(g.dtype)) return LaunchGroupedOuterTensor(call, g);
  const auto launch = [&](auto element) {
    using Tile = PlainTile<decltype(element)>;
    return Launch(OuterKernel<decltype(element)>, GridForPieces(OuterTasks<Tile>(g)),
                  Tile::kThreads, Tile::kBytes, call, g);
  };
  return g.dtype == DType::kF64 ? launch(double{}) : launch(float{});
}

}  // namespace tally::internal
