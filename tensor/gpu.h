// How ops reach their GPU kernels: OnGpu.
#ifndef TALLY_TENSOR_GPU_H_
#define TALLY_TENSOR_GPU_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tally/tensor/device.h"
#include "tally/tensor/gpu_call.h"

namespace tally {
namespace internal {

// Of the CUDA library (tensor/backend_cuda.cc), null without it. Launchers of a device take turns,
// whatever thread they are called from, so the kernels of one follow each other on the stream. `op`
// names the slot of the fault. OK, or what the launch said, with the device.
[[gnu::weak]] absl::Status LaunchOnGpu(Device device, const char* op,
                                       absl::FunctionRef<GpuError(const GpuCall&)> launch);

}  // namespace internal

// Runs a launcher on a device that is there: launch(const GpuCall&) -> GpuError, which starts no
// other. `op` is the name under which faults in data are told; null where the kernels raise none.
// Nothing is run where work that had been put off (gpu_defer.h) fails to start: its error is
// returned.
template <typename Launch>
absl::Status OnGpu(Device device, const char* op, const Launch& launch) {
  return internal::LaunchOnGpu(device, op, launch);
}
template <typename Launch>
absl::Status OnGpu(Device device, const Launch& launch) {
  return OnGpu(device, nullptr, launch);
}

}  // namespace tally

#endif  // TALLY_TENSOR_GPU_H_
