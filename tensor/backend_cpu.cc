#include <omp.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backends.h"
#include "tally/tensor/cpu_allocator.h"

namespace tally {
namespace {

constexpr int64_t kGrain = int64_t{1} << 20;  // bytes that are worth a thread

// Runs fn(begin, end) over [0, bytes) in one part per thread: long parts let memcpy and memset pass
// the caches by.
template <typename Fn>
void ForParts(int64_t bytes, Fn fn) {
  if (bytes == 0) return;  // the pointers may be null
  const int64_t threads = std::min<int64_t>(omp_get_max_threads(), bytes / kGrain);
  if (threads <= 1) return fn(0, bytes);
  const int64_t part = (bytes / threads + 4095) / 4096 * 4096;  // whole items of every size
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads))
  for (int64_t i = 0; i < threads; ++i) {
    const int64_t begin = std::min(bytes, i * part);
    fn(begin, std::min(bytes, begin + part));
  }
}

void CopyBytes(void* dst, const void* src, int64_t bytes) {
  ForParts(bytes, [=](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(dst) + begin, static_cast<const char*>(src) + begin,
                static_cast<size_t>(end - begin));
  });
}

template <typename T>
void FillItems(void* dst, const void* value, int64_t count) {
  T item;
  std::memcpy(&item, value, sizeof(T));
  const unsigned char byte = static_cast<unsigned char>(item);
  const bool all_equal = item == static_cast<T>(byte * (~T{0} / 255));  // 0x0101... times the byte
  ForParts(count * static_cast<int64_t>(sizeof(T)), [=](int64_t begin, int64_t end) {
    char* out = static_cast<char*>(dst);
    if (all_equal) {
      std::memset(out + begin, byte, static_cast<size_t>(end - begin));
    } else {
      std::fill(reinterpret_cast<T*>(out + begin), reinterpret_cast<T*>(out + end), item);
    }
  });
}

class Cpu final : public Backend {
 public:
  const char* name() const override { return "cpu"; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (void* data = internal::CpuAllocator::Get().Allocate(bytes); data != nullptr) return data;
    return absl::ResourceExhaustedError(absl::StrCat(
        "cpu: out of memory: ", bytes, " B were asked for; ", CpuAllocatorStats().requested_bytes,
        " B are in use, and this machine has ", internal::CpuAllocator::LargestRequest(), " B"));
  }

  void Free(void* data, int64_t /*bytes*/) override { internal::CpuAllocator::Get().Free(data); }

  absl::Status CopyIn(void* dst, const void* host, int64_t bytes) override {
    CopyBytes(dst, host, bytes);
    return absl::OkStatus();
  }

  absl::Status CopyOut(void* host, const void* src, int64_t bytes) override {
    CopyBytes(host, src, bytes);
    return absl::OkStatus();
  }

  absl::Status Fill(void* dst, const void* value, int64_t item, int64_t count) override {
    if (item == 1) {
      FillItems<uint8_t>(dst, value, count);
    } else if (item == 2) {
      FillItems<uint16_t>(dst, value, count);
    } else if (item == 4) {
      FillItems<uint32_t>(dst, value, count);
    } else if (item == 8) {
      FillItems<uint64_t>(dst, value, count);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("cpu: cannot fill items of ", item, " B"));
    }
    return absl::OkStatus();
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }

  absl::Status Gemm(const GemmArgs& args) override {
    GemmCpu(args);
    return absl::OkStatus();
  }
};

}  // namespace

Backend& internal::CpuBackend() {
  static Backend& backend = *new Cpu;
  return backend;
}

void ReleaseCachedMemory() { internal::CpuAllocator::Get().ReleaseCached(); }

AllocatorStats CpuAllocatorStats() { return internal::CpuAllocator::Get().Stats(); }

}  // namespace tally
