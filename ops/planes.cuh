// Kernels over planes of images, a thread for each element.
#ifndef TALLY_OPS_PLANES_CUH_
#define TALLY_OPS_PLANES_CUH_

#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

// Planes are cut in parts of a block each.
struct PlaneParts {
  int64_t plane, width, parts;

  __device__ int64_t PlaneOf(int64_t piece) const { return piece / parts; }
  __device__ int64_t ElementOf(int64_t piece) const {
    return piece % parts * blockDim.x + threadIdx.x;
  }
};

// launch(parts, pieces, threads) for planes of `height` x `width`.
template <typename Fn>
GpuError ForPlanes(int64_t planes, int64_t height, int64_t width, const Fn& launch) {
  const int64_t plane = height * width;
  const int threads = BlockFor(plane);
  const PlaneParts parts{plane, width, (plane + threads - 1) / threads};
  return launch(parts, planes * parts.parts, threads);
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_PLANES_CUH_
