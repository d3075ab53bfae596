#include "tally/tensor/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"
#include "tally/tensor/cuda_status.h"

namespace tally::internal {
namespace {

constexpr int kLeastMajor = 8;  // kernels are built for 8.0 and newer

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

// Nobody else's tool can watch an allocation inside a segment.
bool Caching() {
  const char* value = std::getenv("TALLY_CUDA_CACHING");
  return value == nullptr || std::string_view(value) != "0";
}

absl::Status Missing(int index, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("cuda:", index, ": ", what, "; use cpu, or meta for sizes"));
}

absl::Status FindDevice(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError();
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) cudaGetLastError();
    if (driver == 0) return Missing(index, "this machine has no NVIDIA driver");
    return Missing(index, absl::StrCat("the driver is too old: it knows CUDA ", Version(driver),
                                       " and this build needs ", Version(runtime)));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return Missing(index, "this machine has no GPU that CUDA can use");
  }
  if (error != cudaSuccess) {
    return Missing(index, absl::StrCat("CUDA does not start: ", cudaGetErrorString(error)));
  }
  if (index >= count) {
    return Missing(index, count == 1 ? std::string("this machine has one GPU, cuda:0")
                                     : absl::StrCat("this machine has ", count, " GPUs, cuda:0 to ",
                                                    "cuda:", count - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FaultSlots::Prepare() {
  void* data = nullptr;
  TALLY_RETURN_IF_ERROR(
      TALLY_CUDA_STATUS(cudaHostAlloc(&data, kSlots * sizeof(GpuFault), cudaHostAllocMapped)));
  slots_ = static_cast<GpuFault*>(data);
  for (int i = 0; i < kSlots; ++i) slots_[i] = GpuFault();
  return absl::OkStatus();
}

GpuFault* FaultSlots::Of(const char* op) {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == op) return &slots_[i];
  }
  TALLY_CHECK(names_.size() < kSlots) << "more ops than places for their faults";
  names_.push_back(op);
  return &slots_[names_.size() - 1];
}

absl::Status FaultSlots::Take(const std::string& device) {
  absl::Status first;
  for (size_t i = 0; i < names_.size(); ++i) {
    // The device writes `raised` last; only then does it leave the slot alone.
    GpuFault& told = slots_[i];
    const std::atomic_ref<int32_t> raised(told.raised), claimed(told.claimed);
    const int32_t kind = raised.load(std::memory_order_acquire);
    if (kind == GpuFault::kNone) continue;
    const int64_t value = told.value, limit = told.limit;
    const bool offsets = kind == GpuFault::kOffsets;
    const int operand = told.operand;
    raised.store(GpuFault::kNone, std::memory_order_relaxed);
    claimed.store(0, std::memory_order_release);
    if (!first.ok()) continue;
    const std::string what = offsets ? absl::StrCat("the offsets of input ", operand,
                                                    " do not ascend from 0 to ", limit, ": ", value)
                                     : absl::StrCat("input ", operand, " has the index ", value,
                                                    ", which is not in [0, ", limit, ")");
    first = absl::OutOfRangeError(absl::StrCat(names_[i], ": ", what, " (told by ", device,
                                               " after the launch; what it computed is lost)"));
  }
  return first;
}

CudaDevice::CudaDevice(int index)
    : index_(index),
      name_(absl::StrCat("cuda:", index)),
      segments_(index, this),
      pool_(segments_, Caching()) {}

absl::StatusOr<CudaDevice*> CudaDevice::Open(int index) {
  TALLY_RETURN_IF_ERROR(FindDevice(index));
  cudaDeviceProp properties = {};
  TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaGetDeviceProperties(&properties, index)));
  if (properties.major < kLeastMajor) {
    return Missing(index,
                   absl::StrCat(properties.name, " has compute capability ", properties.major, ".",
                                properties.minor, ", and this build has kernels for ", kLeastMajor,
                                ".0 and newer"));
  }
  auto* device =
      new CudaDevice(index);  // lives as long as the program: the driver is unloaded first
  if (absl::Status status = device->Start(properties); !status.ok()) {
    status = device->Told(status);
    delete device;
    return status;
  }
  return device;
}

absl::Status CudaDevice::Start(const cudaDeviceProp& properties) {
  Use();
  model_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  TALLY_RETURN_IF_ERROR(
      TALLY_CUDA_STATUS(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)));
  partials_ = segments_.Take(kGpuPartialsBytes);
  if (partials_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory: no ", kGpuPartialsBytes,
                                                     " B for partial results of reductions"));
  }
  return faults_.Prepare();
}

// Not remembered: other code of the program may choose a device too.
void CudaDevice::Use() const {
  if (cudaSetDevice(index_) != cudaSuccess) cudaGetLastError();
}

absl::StatusOr<GpuCall> CudaDevice::Call(const char* op) {
  Use();
  GpuCall call{.stream = stream_,
               .multiprocessors = multiprocessors_,
               .partials = partials_,
               .pool = &pool_};
  const std::lock_guard lock(mutex_);
  TALLY_RETURN_IF_ERROR(StartWaiting());
  if (op != nullptr) call.fault = faults_.Of(op);
  return call;
}

absl::Status CudaDevice::CopyIn(void* dst, const void* host, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  Use();
  const std::lock_guard lock(mutex_);
  TALLY_RETURN_IF_ERROR(StartWaiting());
  return Told(staging_.CopyIn(dst, host, bytes, stream_));
}

absl::Status CudaDevice::CopyOut(void* host, const void* src, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  Use();
  const std::lock_guard lock(mutex_);
  TALLY_RETURN_IF_ERROR(StartWaiting());
  TALLY_RETURN_IF_ERROR(Told(staging_.CopyOut(host, src, bytes, stream_)));
  return faults_.Take(name_);
}

absl::Status CudaDevice::Synchronize() {
  Use();
  const std::lock_guard lock(mutex_);
  absl::Status status = StartWaiting();
  status.Update(Told(TALLY_CUDA_STATUS(cudaStreamSynchronize(stream_))));
  TALLY_RETURN_IF_ERROR(status);
  return faults_.Take(name_);
}

absl::Status CudaDevice::Defer(MakeDeferredWork make, AddDeferredWork add) {
  Use();
  const std::lock_guard lock(mutex_);
  TALLY_RETURN_IF_ERROR(std::exchange(untold_, absl::OkStatus()));
  auto it = std::find_if(waiting_.begin(), waiting_.end(),
                         [&](const auto& kind) { return kind.first == make; });
  if (it == waiting_.end()) it = waiting_.emplace(it, make, make());
  ++deferred_.pieces;
  return CountLaunches(add(*it->second, {.stream = stream_, .multiprocessors = multiprocessors_}));
}

void CudaDevice::StartDeferred() {
  Use();
  const std::lock_guard lock(mutex_);
  absl::Status status = StartWaiting();
  untold_ = std::move(status);
}

CudaDevice::DeferredCounts CudaDevice::deferred() {
  const std::lock_guard lock(mutex_);
  return deferred_;
}

absl::Status CudaDevice::StartWaiting() {
  absl::Status status = std::exchange(untold_, absl::OkStatus());
  for (const auto& [make, work] : waiting_) {
    status.Update(
        CountLaunches(work->Start({.stream = stream_, .multiprocessors = multiprocessors_})));
  }
  return status;
}

absl::Status CudaDevice::CountLaunches(const DeferredLaunches& launched) {
  deferred_.launches += launched.launches;
  if (launched.error == cudaSuccess) return absl::OkStatus();
  return Told(CudaStatus(static_cast<cudaError_t>(launched.error),
                         absl::StrCat(launched.op, " (put off): launch")));
}

absl::Status CudaDevice::Told(const absl::Status& status) const {
  if (status.ok()) return status;
  // A fault comes back with every call, first with one that has nothing to do with it.
  const cudaError_t fault = cudaStreamQuery(stream_);
  if (fault == cudaSuccess || fault == cudaErrorNotReady) {
    return absl::Status(status.code(), absl::StrCat(name_, ": ", status.message()));
  }
  cudaGetLastError();
  return absl::InternalError(
      absl::StrCat(name_, ": the device is lost to this program: a kernel launched by now failed, ",
                   cudaGetErrorString(fault), " (", cudaGetErrorName(fault),
                   "); with CUDA_LAUNCH_BLOCKING=1 in the environment its own op tells it; here: ",
                   status.message()));
}

}  // namespace tally::internal
