// The one place that takes memory from a GPU, and the copies between it and the host.
#include <algorithm>
#include <cstring>

#include "tally/tensor/check.h"
#include "tally/tensor/cuda_device.h"
#include "tally/tensor/cuda_status.h"

namespace tally {

bool gpu::MakeRoom(const GpuCall& call) {
  cudaGetLastError();
  if (call.pool == nullptr) return false;
  call.pool->ReleaseCached();
  return true;
}

namespace internal {
namespace {

// What is no answer to the call itself is a fault of work before: the next call that can tell it
// gets it again.
cudaError_t LeaveFaults(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

}  // namespace

void* CudaSegments::Take(int64_t bytes) {
  LeaveFaults(cudaSetDevice(device_));
  void* segment = nullptr;
  const cudaError_t error = LeaveFaults(cudaMalloc(&segment, static_cast<size_t>(bytes)));
  return error == cudaSuccess ? segment : nullptr;
}

void CudaSegments::GiveBack(void* segment, int64_t /*bytes*/) {
  if (user_ != nullptr) user_->StartDeferred();
  LeaveFaults(cudaSetDevice(device_));
  // For all that was queued on the segment: nothing promises that cudaFree waits for a stream that
  // does not block.
  LeaveFaults(cudaDeviceSynchronize());
  const cudaError_t error = LeaveFaults(cudaFree(segment));
  TALLY_CHECK(error != cudaErrorInvalidValue) << "freed memory that is not the device's";
}

absl::StatusOr<CudaMemory> DeviceMemory() {
  size_t free = 0, total = 0;
  TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaMemGetInfo(&free, &total)));
  return CudaMemory{static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

absl::Status StagingBuffers::Prepare() {
  if (buffers_.back().passed != nullptr) return absl::OkStatus();
  for (Buffer& buffer : buffers_) {
    void* data = nullptr;
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaHostAlloc(&data, kBytes, cudaHostAllocDefault)));
    buffer.data = static_cast<char*>(data);
    TALLY_RETURN_IF_ERROR(
        TALLY_CUDA_STATUS(cudaEventCreateWithFlags(&buffer.passed, cudaEventDisableTiming)));
  }
  return absl::OkStatus();
}

const StagingBuffers::Buffer& StagingBuffers::Next() {
  const Buffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % kBuffers;
  return buffer;
}

absl::Status StagingBuffers::CopyIn(void* dst, const void* host, int64_t bytes,
                                    cudaStream_t stream) {
  TALLY_RETURN_IF_ERROR(Prepare());
  for (int64_t at = 0; at < bytes; at += kBytes) {
    const auto part = static_cast<size_t>(std::min(kBytes, bytes - at));
    const Buffer& buffer = Next();
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaEventSynchronize(buffer.passed)));
    std::memcpy(buffer.data, static_cast<const char*>(host) + at, part);
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaMemcpyAsync(
        static_cast<char*>(dst) + at, buffer.data, part, cudaMemcpyHostToDevice, stream)));
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaEventRecord(buffer.passed, stream)));
  }
  return absl::OkStatus();
}

absl::Status StagingBuffers::CopyOut(void* host, const void* src, int64_t bytes,
                                     cudaStream_t stream) {
  TALLY_RETURN_IF_ERROR(Prepare());
  // One part behind: while a part is on its way into one buffer, the one before leaves the other.
  char* behind = nullptr;
  size_t behind_bytes = 0;
  const Buffer* behind_buffer = nullptr;
  const auto take = [&]() -> absl::Status {
    if (behind_buffer == nullptr) return absl::OkStatus();
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaEventSynchronize(behind_buffer->passed)));
    std::memcpy(behind, behind_buffer->data, behind_bytes);
    return absl::OkStatus();
  };
  for (int64_t at = 0; at < bytes; at += kBytes) {
    const auto part = static_cast<size_t>(std::min(kBytes, bytes - at));
    const Buffer& buffer = Next();
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaEventSynchronize(buffer.passed)));
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaMemcpyAsync(
        buffer.data, static_cast<const char*>(src) + at, part, cudaMemcpyDeviceToHost, stream)));
    TALLY_RETURN_IF_ERROR(TALLY_CUDA_STATUS(cudaEventRecord(buffer.passed, stream)));
    TALLY_RETURN_IF_ERROR(take());
    behind = static_cast<char*>(host) + at;
    behind_bytes = part;
    behind_buffer = &buffer;
  }
  return take();
}

}  // namespace internal
}  // namespace tally
