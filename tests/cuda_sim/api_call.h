#ifndef TALLY_TESTS_CUDA_SIM_API_CALL_H_
#define TALLY_TESTS_CUDA_SIM_API_CALL_H_

// What every function of the runtime does around its own work.

#include <mutex>

#include "executor.h"
#include "state.h"

namespace tally_sim::internal {

// Reports an error that nobody asked cudaGetLastError about before this call of `name`.
void CheckUnchecked(const char* name);

// Remembers an error as the thread's last one. Returns it.
cudaError_t Note(const char* name, cudaError_t error);

// Why no call can do its work: no driver, no device, or a kernel that failed.
cudaError_t Unusable();

// Runs body() -> cudaError_t, unless the device cannot be used.
template <typename Body>
cudaError_t ApiCall(const char* name, Body body) {
  const std::lock_guard lock(GetState().mutex);
  CheckUnchecked(name);
  const cudaError_t error = Unusable();
  return Note(name, error != cudaSuccess ? error : body());
}

// Whether there is memory to load the kernel at `function`, if it is not loaded; null: for what a
// library loads.
bool CanLoad(const void* function);

// Forgets what cudaFuncSetAttribute set, and which kernels are loaded.
void ForgetFunctions();

// An error found in the arguments of a call that a device would leave undefined.
cudaError_t ReportInvalid(const std::string& report, cudaError_t error = cudaErrorInvalidValue);

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_API_CALL_H_
