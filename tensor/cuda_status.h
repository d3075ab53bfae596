// Every call of the CUDA runtime is checked, by CudaStatus where it can be told. Private to the
// CUDA library.
#ifndef TALLY_TENSOR_CUDA_STATUS_H_
#define TALLY_TENSOR_CUDA_STATUS_H_

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tally::internal {

// "cudaMemcpyAsync: invalid argument (cudaErrorInvalidValue)". Takes the error off the runtime's
// hands; an error of the device itself stays and comes back with every later call.
inline absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string text =
      absl::StrCat(call, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

#define TALLY_CUDA_STATUS(call) ::tally::internal::CudaStatus(call, #call)

}  // namespace tally::internal

#endif  // TALLY_TENSOR_CUDA_STATUS_H_
