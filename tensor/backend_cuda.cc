#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backends.h"
#include "tally/tensor/check.h"
#include "tally/tensor/cuda_device.h"
#include "tally/tensor/cuda_status.h"
#include "tally/tensor/fill.h"
#include "tally/tensor/gemm_cublas.h"
#include "tally/tensor/gpu.h"

namespace tally {
namespace internal {
namespace {

class Cuda final : public Backend {
 public:
  explicit Cuda(CudaDevice& device) : device_(device) {}

  const char* name() const override { return device_.name().c_str(); }
  CudaDevice& device() { return device_; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (void* data = device_.pool().Allocate(bytes); data != nullptr) return data;
    device_.Use();
    const absl::StatusOr<CudaMemory> memory = DeviceMemory();
    if (!memory.ok()) return device_.Told(memory.status());
    const AllocatorStats stats = device_.pool().Stats();
    return absl::ResourceExhaustedError(absl::StrCat(
        name(), ": out of memory: ", bytes, " B were asked for; of its ", memory->total, " B, ",
        memory->free, " B are free and ", stats.reserved_bytes, " B held here, ",
        stats.requested_bytes, " B of them in use; the largest block that is not has ",
        device_.pool().LargestCached(), " B"));
  }

  void Free(void* data, int64_t /*bytes*/) override { device_.pool().Free(data); }

  absl::Status CopyIn(void* dst, const void* host, int64_t bytes) override {
    return device_.CopyIn(dst, host, bytes);
  }
  absl::Status CopyOut(void* host, const void* src, int64_t bytes) override {
    return device_.CopyOut(host, src, bytes);
  }

  absl::Status Fill(void* dst, const void* value, int64_t item, int64_t count) override {
    if (item != 1 && item != 2 && item != 4 && item != 8) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": cannot fill items of ", item, " B"));
    }
    uint64_t bits = 0;
    std::memcpy(&bits, value, static_cast<size_t>(item));
    TALLY_ASSIGN_OR_RETURN(const GpuCall call, device_.Call(nullptr));
    return device_.Told(
        CudaStatus(static_cast<cudaError_t>(gpu::FillItems(call, dst, bits, item, count)), "fill"));
  }

  absl::Status Synchronize() override { return device_.Synchronize(); }

  absl::Status Gemm(const GemmArgs& args) override {
    TALLY_ASSIGN_OR_RETURN(const GpuCall call, device_.Call(nullptr));
    {
      const std::lock_guard lock(mutex_);
      if (gemm_ == nullptr) TALLY_RETURN_IF_ERROR(device_.Told(StartGemm()));
    }
    return device_.Told(gemm_->Run(ToColumnMajor(args), call));
  }

  int64_t workspace_bytes() {
    const std::lock_guard lock(mutex_);
    return kGpuPartialsBytes + (gemm_ == nullptr ? 0 : kGemmWorkspaceBytes);
  }

 private:
  // The workspace is no tensor's: it comes from the device itself and is told apart.
  absl::Status StartGemm() {
    CudaSegments segments(device_.index());
    void* workspace = segments.Take(kGemmWorkspaceBytes);
    if (workspace == nullptr) {
      device_.pool().ReleaseCached();
      workspace = segments.Take(kGemmWorkspaceBytes);
    }
    if (workspace == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("out of memory: no ", kGemmWorkspaceBytes,
                                                       " B for the workspace of products"));
    }
    absl::StatusOr<std::unique_ptr<CublasGemm>> gemm = CublasGemm::Make(workspace);
    if (!gemm.ok() && !absl::IsFailedPrecondition(gemm.status())) {
      device_.pool().ReleaseCached();  // the library takes memory of its own
      gemm = CublasGemm::Make(workspace);
    }
    if (!gemm.ok()) {
      segments.GiveBack(workspace, kGemmWorkspaceBytes);
      return gemm.status();
    }
    gemm_ = *std::move(gemm);
    return absl::OkStatus();
  }

  CudaDevice& device_;
  std::mutex mutex_;
  std::unique_ptr<CublasGemm> gemm_;
};

constexpr int kMaxDevices = 256;  // a Device's index is a byte

// Backends live as long as the program.
absl::StatusOr<Cuda*> Find(int index) {
  static std::mutex mutex;
  static std::array<Cuda*, kMaxDevices> found{};
  const std::lock_guard lock(mutex);
  if (found[index] == nullptr) {
    TALLY_ASSIGN_OR_RETURN(CudaDevice * device, CudaDevice::Open(index));
    found[index] = new Cuda(*device);
  }
  return found[index];
}

Cuda& Existing(Device device) {
  absl::StatusOr<Cuda*> cuda = Find(device.index);
  TALLY_CHECK(cuda.ok()) << cuda.status().message();
  return **cuda;
}

}  // namespace

absl::StatusOr<Backend*> CudaBackend(int index) { return Find(index); }

absl::Status LaunchOnGpu(Device device, const char* op,
                         absl::FunctionRef<GpuError(const GpuCall&)> launch) {
  CudaDevice& cuda = Existing(device).device();
  const std::lock_guard turn(cuda.turn());
  TALLY_ASSIGN_OR_RETURN(const GpuCall call, cuda.Call(op));
  const GpuError error = launch(call);
  if (error == cudaSuccess) return absl::OkStatus();
  return cuda.Told(CudaStatus(static_cast<cudaError_t>(error), "launch"));
}

absl::Status GpuDefer(Device device, MakeDeferredWork make, AddDeferredWork add) {
  return Existing(device).device().Defer(make, add);
}

GpuStats CudaStats(int index) {
  Cuda& cuda = Existing({DeviceKind::kCuda, static_cast<uint8_t>(index)});
  const CudaDevice::DeferredCounts deferred = cuda.device().deferred();
  return {.memory = cuda.device().pool().Stats(),
          .workspace_bytes = cuda.workspace_bytes(),
          .deferred = deferred.pieces,
          .deferred_launches = deferred.launches,
          .model = cuda.device().model()};
}

void ReleaseCachedCudaMemory(int index) {
  Existing({DeviceKind::kCuda, static_cast<uint8_t>(index)}).device().pool().ReleaseCached();
}

}  // namespace internal
}  // namespace tally
