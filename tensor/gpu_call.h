// What a launcher of GPU kernels gets and gives, in terms that need neither CUDA nor Abseil: device
// code and the ops that call it meet here.
//
// A launcher is a host function of a `.cu` file: it starts kernels on `stream` and returns without
// waiting for them. The ops declare launchers weak, so that a program without the CUDA library
// links and has null there; none is called unless a device was found.
#ifndef TALLY_TENSOR_GPU_CALL_H_
#define TALLY_TENSOR_GPU_CALL_H_

#include <cstdint>

namespace tally {

// What a kernel found wrong with its data, told at the next synchronisation. In host memory that
// the device sees. A kernel that raises one writes nothing for that element and goes on.
struct GpuFault {
  enum Kind : int32_t {
    kNone,
    kIndex,    // `value` is not in [0, limit)
    kOffsets,  // row offsets do not ascend from 0 to `limit`: `value`
  };
  int32_t claimed = 0;     // by the first to tell, which wins
  int32_t raised = kNone;  // written last: the rest is there
  int32_t operand = 0;     // which input
  int64_t value = 0;
  int64_t limit = 0;
};

namespace internal {
class CachingPool;
}

// Bytes of GpuCall::partials.
inline constexpr int64_t kGpuPartialsBytes = int64_t{1} << 19;

struct GpuCall {
  void* stream = nullptr;   // a cudaStream_t
  int multiprocessors = 1;  // for the size of a grid that strides
  GpuFault* fault = nullptr;
  // Device memory for what one kernel of a launcher leaves to the next: results of parts that are
  // combined. The device's own, no storage of the account, and the same for every launcher: what it
  // holds is lost when the launcher returns. Aligned to 256 bytes.
  void* partials = nullptr;
  internal::CachingPool* pool = nullptr;  // may give memory back for what the call needs to load
};

// A cudaError_t; 0 is success.
using GpuError = int;

namespace gpu {

// After a call of the runtime or of a library that found no memory: gives back what the pool of
// `call` caches. Whether there is a pool, and so a reason to try again.
bool MakeRoom(const GpuCall& call);

}  // namespace gpu

}  // namespace tally

#endif  // TALLY_TENSOR_GPU_CALL_H_
