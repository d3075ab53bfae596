// How ops reach their GPU kernels: OnGpu.
#ifndef TALLY_TENSOR_GPU_H_
#define TALLY_TENSOR_GPU_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tally/tensor/check.h"
#include "tally/tensor/device.h"
#include "tally/tensor/gpu_call.h"

namespace tally {
namespace internal {

// Of the CUDA library (tensor/backend_cuda.cc), null without it. `op` names the slot of the fault.
[[gnu::weak]] absl::StatusOr<GpuCall> GpuCallOn(Device device, const char* op);
// OK, or what the launch said, with the device.
[[gnu::weak]] absl::Status GpuLaunched(Device device, GpuError error);

}  // namespace internal

// Runs a launcher on a device that is there: launch(const GpuCall&) -> GpuError. `op` is the name
// under which faults in data are told; null where the kernels raise none. Nothing is run where work
// that had been put off (gpu_defer.h) fails to start: its error is returned.
template <typename Launch>
absl::Status OnGpu(Device device, const char* op, const Launch& launch) {
  TALLY_ASSIGN_OR_RETURN(const GpuCall call, internal::GpuCallOn(device, op));
  return internal::GpuLaunched(device, launch(call));
}
template <typename Launch>
absl::Status OnGpu(Device device, const Launch& launch) {
  return OnGpu(device, nullptr, launch);
}

}  // namespace tally

#endif  // TALLY_TENSOR_GPU_H_
