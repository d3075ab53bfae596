// Which kernels of fused attention run.
#include "tally/ops/sdpa.cuh"

namespace tally::internal {

GpuError LaunchSdpa(const GpuCall& call, const GpuSdpa& f) {
  return gpu::SdpaTensorCores(f) ? gpu::LaunchSdpaTensor(call, f) : gpu::LaunchSdpaPlain(call, f);
}

GpuError LaunchSdpaGrad(const GpuCall& call, const GpuSdpa& f) {
  if (f.delta != nullptr) {
    const GpuError error = gpu::LaunchSdpaDelta(call, f);
    if (error != cudaSuccess) return error;
  }
  return gpu::SdpaGradTensorCores(f) ? gpu::LaunchSdpaGradTensor(call, f)
                                     : gpu::LaunchSdpaGradPlain(call, f);
}

}  // namespace tally::internal
