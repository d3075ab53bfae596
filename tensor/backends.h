// The backends. Private to tensor/.
#ifndef TALLY_TENSOR_BACKENDS_H_
#define TALLY_TENSOR_BACKENDS_H_

#include "tally/tensor/backend.h"

namespace tally::internal {

Backend& CpuBackend();
Backend& MetaBackend();

// Of the CUDA library; null in a program without it.
[[gnu::weak]] absl::StatusOr<Backend*> CudaBackend(int index);
[[gnu::weak]] GpuStats CudaStats(int index);
[[gnu::weak]] void ReleaseCachedCudaMemory(int index);

}  // namespace tally::internal

#endif  // TALLY_TENSOR_BACKENDS_H_
