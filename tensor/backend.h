// What a device must offer. No op appears here.
#ifndef TALLY_TENSOR_BACKEND_H_
#define TALLY_TENSOR_BACKEND_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tally/tensor/device.h"
#include "tally/tensor/gemm.h"

namespace tally {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Memory aligned to 64 bytes, or kResourceExhausted. bytes = 0 gives a valid pointer too.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* data, int64_t bytes) = 0;
  virtual absl::Status CopyIn(void* dst, const void* host, int64_t bytes) = 0;
  virtual absl::Status CopyOut(void* host, const void* src, int64_t bytes) = 0;
  // Sets `count` elements of `item` bytes each (1, 2, 4 or 8) to the pattern at `value`.
  virtual absl::Status Fill(void* dst, const void* value, int64_t item, int64_t count) = 0;
  virtual absl::Status Synchronize() = 0;
  virtual absl::Status Gemm(const GemmArgs& args) = 0;
};

// Requested against held bytes of a caching allocator; reports never mix the two.
struct AllocatorStats {
  int64_t requested_bytes = 0;   // live now
  int64_t reserved_bytes = 0;    // held from the system, live or cached
  int64_t peak_reserved_bytes = 0;
};

// The backend of a device, or kFailedPrecondition with the reason (no CUDA in this build, no driver).
absl::StatusOr<Backend*> BackendFor(Device device);
// The same where the device is known to exist (a tensor lies on it).
Backend& ExistingBackend(Device device);

// cpu: freed blocks are kept for reuse. This gives the cached ones back to the system.
void ReleaseCachedMemory();
AllocatorStats CpuAllocatorStats();

// Of a GPU that is in use. TALLY_CUDA_CACHING=0 in the environment takes every storage from the
// device and gives it back, for tools that watch each allocation.
struct GpuStats {
  AllocatorStats memory;
  // Beside the pool's and in no account: partial results of reductions and, from the first on, what
  // matrix products need.
  int64_t workspace_bytes = 0;
  // Pieces of work that waited to be launched with others, as steps of optimizers do, and the
  // launches that did them.
  int64_t deferred = 0, deferred_launches = 0;
  std::string model;  // "NVIDIA H100 80GB HBM3"
};
// Both: kFailedPrecondition as BackendFor.
absl::StatusOr<GpuStats> GpuStatsOf(Device device);
absl::Status ReleaseCachedMemory(Device device);

}  // namespace tally

#endif  // TALLY_TENSOR_BACKEND_H_
