#include "tally/tensor/backend.h"

#include "absl/strings/str_cat.h"
#include "tally/tensor/backends.h"
#include "tally/tensor/check.h"

namespace tally {

absl::StatusOr<Backend*> BackendFor(Device device) {
  switch (device.kind) {
    case DeviceKind::kCpu:
      return &internal::CpuBackend();
    case DeviceKind::kMeta:
      return &internal::MetaBackend();
    case DeviceKind::kCuda:
      break;
  }
  if (internal::CudaBackend == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        device.ToString(), ": this build has no CUDA backend; use cpu, or meta for sizes"));
  }
  return internal::CudaBackend(device.index);
}

Backend& ExistingBackend(Device device) {
  if (device.kind == DeviceKind::kCpu) return internal::CpuBackend();
  absl::StatusOr<Backend*> backend = BackendFor(device);
  TALLY_CHECK(backend.ok()) << backend.status().message();
  return **backend;
}

absl::StatusOr<GpuStats> GpuStatsOf(Device device) {
  TALLY_RETURN_IF_ERROR(BackendFor(device).status());
  if (device.kind != DeviceKind::kCuda) {
    return absl::FailedPreconditionError(absl::StrCat(device.ToString(), " is no GPU"));
  }
  return internal::CudaStats(device.index);
}

absl::Status ReleaseCachedMemory(Device device) {
  TALLY_RETURN_IF_ERROR(BackendFor(device).status());
  if (device.kind == DeviceKind::kCpu) ReleaseCachedMemory();
  if (device.kind == DeviceKind::kCuda) internal::ReleaseCachedCudaMemory(device.index);
  return absl::OkStatus();
}

}  // namespace tally
