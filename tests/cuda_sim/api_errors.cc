#include "api_call.h"
#include "cuda_runtime.h"
#include "memory.h"
#include "streams.h"

namespace tally_sim::internal {
namespace {

struct ThreadErrors {
  cudaError_t last = cudaSuccess;
  const char* unchecked_call = nullptr;
  cudaError_t unchecked = cudaSuccess;
};
thread_local ThreadErrors errors;

}  // namespace

void CheckUnchecked(const char* name) {
  if (errors.unchecked_call == nullptr) return;
  const std::string report = std::string("unchecked error ") + cudaGetErrorName(errors.unchecked) +
                             " of " + errors.unchecked_call + ", then a call of " + name;
  errors.unchecked_call = nullptr;
  Report(report);
}

cudaError_t Note(const char* name, cudaError_t error) {
  // Not ready is an answer.
  if (error != cudaSuccess && error != cudaErrorNotReady) {
    errors = {error, name, error};
  }
  return error;
}

cudaError_t Unusable() {
  const State& state = GetState();
  if (state.device.driver_version < CUDART_VERSION / 1000 * 1000)
    return cudaErrorInsufficientDriver;
  if (state.device.count == 0) return cudaErrorNoDevice;
  return state.sticky;
}

cudaError_t ReportInvalid(const std::string& report, cudaError_t error) {
  Report(report);
  return error;
}

}  // namespace tally_sim::internal

namespace tally_sim {

void Reset() {
  const std::lock_guard lock(internal::GetState().mutex);
  internal::DropAll();
  internal::FreeAllDevice();
  internal::ForgetFunctions();
  internal::GetState().sticky = cudaSuccess;
  internal::errors = {};
}

}  // namespace tally_sim

using tally_sim::internal::errors;
using tally_sim::internal::GetState;

cudaError_t cudaGetLastError() {
  const cudaError_t error = errors.last;
  errors.unchecked_call = nullptr;
  errors.last = GetState().sticky;
  return error;
}

cudaError_t cudaPeekAtLastError() { return errors.last; }

#define TALLY_SIM_ERRORS(X)                                                                      \
  X(cudaSuccess, "no error")                                                                     \
  X(cudaErrorInvalidValue, "invalid argument")                                                   \
  X(cudaErrorMemoryAllocation, "out of memory")                                                  \
  X(cudaErrorInitializationError, "initialization error")                                        \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
  X(cudaErrorInvalidHostPointer, "invalid host pointer")                                         \
  X(cudaErrorInvalidDevicePointer, "invalid device pointer")                                     \
  X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                        \
  X(cudaErrorStubLibrary, "CUDA driver is a stub library")                                       \
  X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
  X(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable")            \
  X(cudaErrorInvalidDeviceFunction, "invalid device function")                                   \
  X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
  X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
  X(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device") \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
  X(cudaErrorNotReady, "device not ready")                                                       \
  X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
  X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
  X(cudaErrorLaunchTimeout, "the launch timed out and was terminated")                           \
  X(cudaErrorAssert, "device-side assert triggered")                                             \
  X(cudaErrorMisalignedAddress, "misaligned address")                                            \
  X(cudaErrorLaunchFailure, "unspecified launch failure")                                        \
  X(cudaErrorNotSupported, "operation not supported")                                            \
  X(cudaErrorSystemDriverMismatch,                                                               \
    "system has unsupported display driver / cuda driver combination")                           \
  X(cudaErrorUnknown, "unknown error")

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define X(name, text) \
  case name:          \
    return #name;
    TALLY_SIM_ERRORS(X)
#undef X
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define X(name, text) \
  case name:          \
    return text;
    TALLY_SIM_ERRORS(X)
#undef X
  }
  return "unrecognized error code";
}
