// One GPU as the engine uses it: its stream, its memory, its staging buffers and the faults its
// kernels raise. Private to the CUDA library.
//
// All work of a device goes to one stream, in the order it was asked for. So a block of memory that
// is freed may be handed out again at once (caching_pool.h), and nothing waits but who needs a
// result on the host. Small pieces may be put off to be launched together; every other call starts
// them first (gpu_defer.h).
#ifndef TALLY_TENSOR_CUDA_DEVICE_H_
#define TALLY_TENSOR_CUDA_DEVICE_H_

#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tally/tensor/caching_pool.h"
#include "tally/tensor/gpu_call.h"
#include "tally/tensor/gpu_defer.h"

namespace tally::internal {

class CudaDevice;

// Bytes of device memory; the one file that allocates them is cuda_memory.cc.
class CudaSegments final : public SegmentSource {
 public:
  // What waits on `user` may have addresses in a segment: it starts before one goes back.
  explicit CudaSegments(int device, CudaDevice* user = nullptr) : device_(device), user_(user) {}
  void* Take(int64_t bytes) override;
  void GiveBack(void* segment, int64_t bytes) override;

 private:
  int device_;
  CudaDevice* user_;
};

// What the device has in all and what is free of it, whoever uses the rest.
struct CudaMemory {
  int64_t total = 0, free = 0;
};
absl::StatusOr<CudaMemory> DeviceMemory();

// Copies between the host's ordinary memory and a device go through pinned buffers in turn, so that
// one is filled while others are on their way. A copy to the device waits for the one that had its
// buffer before, and so for all work queued ahead of that: some ops make a small one at each call,
// and with few buffers the host would be no further ahead of the device than so many calls.
class StagingBuffers {
 public:
  static constexpr int kBuffers = 16;
  static constexpr int64_t kBytes = int64_t{1} << 20;  // of each

  absl::Status CopyIn(void* dst, const void* host, int64_t bytes, cudaStream_t stream);
  // Returns when the bytes are there.
  absl::Status CopyOut(void* host, const void* src, int64_t bytes, cudaStream_t stream);

 private:
  struct Buffer {
    char* data = nullptr;
    cudaEvent_t passed = nullptr;  // the copy that last used it
  };
  absl::Status Prepare();
  const Buffer& Next();

  std::array<Buffer, kBuffers> buffers_;
  int next_ = 0;
};

// Where kernels tell what is wrong with their data, one place for each op by name.
class FaultSlots {
 public:
  absl::Status Prepare();
  // The same place for the same name. Names live as long as the program.
  GpuFault* Of(const char* op);
  // The first fault told, and none after that. The device may be at work.
  absl::Status Take(const std::string& device);

 private:
  static constexpr int kSlots = 256;
  GpuFault* slots_ = nullptr;  // pinned, seen by the device at the same address
  std::vector<const char*> names_;
};

class CudaDevice {
 public:
  // kFailedPrecondition with what is missing: a driver, a device of this number, a new enough one.
  static absl::StatusOr<CudaDevice*> Open(int index);

  int index() const { return index_; }
  const std::string& name() const { return name_; }    // "cuda:0"
  const std::string& model() const { return model_; }  // the maker's name of it
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t stream() const { return stream_; }
  CachingPool& pool() { return pool_; }

  // Makes this the thread's device: before every call of the runtime. Where that fails the call
  // that follows does too, and can tell it.
  void Use() const;
  // For a launch that follows at once. This and the next three start what waits, and tell what went
  // wrong with it in place of doing what they are for (Synchronize waits all the same).
  absl::StatusOr<GpuCall> Call(const char* op);
  // Held from the first kernel of a launcher to the last.
  std::mutex& turn() { return turn_; }
  absl::Status CopyIn(void* dst, const void* host, int64_t bytes);
  absl::Status CopyOut(void* host, const void* src, int64_t bytes);
  // Waits; then tells what kernels found, the first of it.
  absl::Status Synchronize();
  // Lets a piece of work wait, see DeferOnGpu.
  absl::Status Defer(MakeDeferredWork make, AddDeferredWork add);
  // Starts what waits. What goes wrong with it is told by the next call that can.
  void StartDeferred();
  // How many pieces were put off, and the launches that did them.
  struct DeferredCounts {
    int64_t pieces = 0, launches = 0;
  };
  DeferredCounts deferred();
  // "cuda:0: " before what went wrong. After a fault of a kernel nothing works on the device until
  // the program ends: then that is told instead, whatever the call was.
  absl::Status Told(const absl::Status& status) const;

 private:
  explicit CudaDevice(int index);
  absl::Status Start(const cudaDeviceProp& properties);
  // With the lock held.
  absl::Status StartWaiting();
  absl::Status CountLaunches(const DeferredLaunches& launched);

  const int index_;
  const std::string name_;
  std::string model_;
  int multiprocessors_ = 1;
  cudaStream_t stream_ = nullptr;
  CudaSegments segments_;
  CachingPool pool_;
  void* partials_ = nullptr;
  std::mutex turn_;   // of partials_
  std::mutex mutex_;  // of what follows
  StagingBuffers staging_;
  FaultSlots faults_;
  std::vector<std::pair<MakeDeferredWork, std::unique_ptr<DeferredWork>>> waiting_;  // by kind
  DeferredCounts deferred_;
  absl::Status untold_;  // of launches of waiting work
};

}  // namespace tally::internal

#endif  // TALLY_TENSOR_CUDA_DEVICE_H_
