#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backends.h"
#include "tally/tensor/cpu_allocator.h"

namespace tally {
namespace {

// Bytes that one thread handles at a time. A multiple of every item and of the cache line.
constexpr int64_t kChunk = int64_t{1} << 20;

// Runs fn(begin, end) over [0, bytes) in chunks, by several threads when there are several chunks.
template <typename Fn>
void ForChunks(int64_t bytes, Fn fn) {
  const int64_t chunks = (bytes + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t i = 0; i < chunks; ++i) fn(i * kChunk, std::min(bytes, (i + 1) * kChunk));
}

void CopyBytes(void* dst, const void* src, int64_t bytes) {
  ForChunks(bytes, [=](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(dst) + begin, static_cast<const char*>(src) + begin,
                static_cast<size_t>(end - begin));
  });
}

template <typename T>
void FillItems(void* dst, const void* value, int64_t count) {
  T item;
  std::memcpy(&item, value, sizeof(T));
  ForChunks(count * static_cast<int64_t>(sizeof(T)), [=](int64_t begin, int64_t end) {
    T* out = static_cast<T*>(dst);
    std::fill(out + begin / sizeof(T), out + end / sizeof(T), item);
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
