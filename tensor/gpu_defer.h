// Work that a GPU puts off: pieces too small for a launch of their own wait until a launch does
// many of them.
//
// A device keeps what waits, by kind, and starts all of it before anything else is asked of it: the
// launch of a kernel (OnGpu), a product, a fill, a copy to or from the host, a synchronisation, a
// segment of memory that goes back to the driver. So the order of what depends on each other is
// that of the calls, and a block that is freed and handed out again while a piece that has its
// address waits is safe: only a call writes into it. What is taken from the pool for a call is
// therefore taken before the call. What reads a device's memory past the backend must synchronise
// first, as it must for kernels that are under way.
//
// A piece alone starts nothing, so pieces must see to their own order: one that meets memory of a
// piece that waits makes that one start first.
#ifndef TALLY_TENSOR_GPU_DEFER_H_
#define TALLY_TENSOR_GPU_DEFER_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tally/tensor/device.h"
#include "tally/tensor/gpu_call.h"

namespace tally {

// What launches of waiting work came to.
struct DeferredLaunches {
  int64_t launches = 0;
  GpuError error = 0;        // the first
  const char* op = nullptr;  // which it was told for

  void Add(const DeferredLaunches& next) {
    launches += next.launches;
    if (error != 0) return;
    error = next.error;
    op = next.op;
  }
};

// The waiting work of one kind on one device, which owns it and calls it from one thread at a time.
class DeferredWork {
 public:
  virtual ~DeferredWork() = default;
  // Launches all that waits. Nothing of it waits any more, even where a launch fails.
  virtual DeferredLaunches Start(const GpuCall& call) = 0;
};

namespace internal {

using MakeDeferredWork = std::unique_ptr<DeferredWork> (*)();
using AddDeferredWork = absl::FunctionRef<DeferredLaunches(DeferredWork&, const GpuCall&)>;
// Of the CUDA library (tensor/backend_cuda.cc), null without it. `make` is the kind.
[[gnu::weak]] absl::Status GpuDefer(Device device, MakeDeferredWork make, AddDeferredWork add);

template <class Work>
std::unique_ptr<DeferredWork> MakeWork() {
  return std::make_unique<Work>();
}

}  // namespace internal

// Adds a piece to the device's waiting Work: add(Work&, const GpuCall&) -> DeferredLaunches of what
// had to start for it. An error is that of a launch of earlier pieces; they are lost and, as where
// an op fails, this one is not done either.
template <class Work, typename Add>
absl::Status DeferOnGpu(Device device, const Add& add) {
  return internal::GpuDefer(
      device, internal::MakeWork<Work>,
      [&](DeferredWork& work, const GpuCall& call) { return add(static_cast<Work&>(work), call); });
}

}  // namespace tally

#endif  // TALLY_TENSOR_GPU_DEFER_H_
