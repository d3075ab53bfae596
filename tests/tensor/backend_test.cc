#include "tally/tensor/backend.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tally {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif

Backend& Cpu() { return ExistingBackend(kCpu); }
void* Take(int64_t bytes) { return Cpu().Allocate(bytes).value(); }
void Give(void* data, int64_t bytes) { Cpu().Free(data, bytes); }

TEST(BackendFor, KnowsCpuAndMeta) {
  EXPECT_STREQ((*BackendFor(kCpu))->name(), "cpu");
  EXPECT_STREQ((*BackendFor(kMeta))->name(), "meta");
}

// Whether the build has no CUDA, the machine no driver or fewer GPUs: the way out is told.
TEST(BackendFor, SaysWhyThereIsNoSuchGpu) {
  const absl::Status status = BackendFor({DeviceKind::kCuda, 255}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::StartsWith("cuda:255: this "),
                               ::testing::EndsWith("; use cpu, or meta for sizes")));
}

TEST(CpuBackend, GivesAlignedWritableMemoryOfEverySize) {
  std::vector<std::pair<char*, int64_t>> live;
  for (int64_t bytes = 0; bytes < 20 * kMiB; bytes = bytes * 5 / 4 + 1) {
    char* data = static_cast<char*>(Take(bytes));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    std::memset(data, static_cast<int>(live.size()), static_cast<size_t>(bytes));
    live.emplace_back(data, bytes);
  }
  for (size_t i = 0; i < live.size(); ++i) {  // nobody wrote over another's memory
    const auto [data, bytes] = live[i];
    if (bytes > 0) {
      EXPECT_EQ(data[0], static_cast<char>(i));
      EXPECT_EQ(data[bytes - 1], static_cast<char>(i));
    }
    Give(data, bytes);
  }
}

TEST(CpuBackend, CopiesAndFillsAcrossChunkEdges) {
  const int64_t count = 3 * kMiB / 8 + 5;
  std::vector<uint64_t> host(count);
  for (const int64_t item : {1, 2, 4, 8}) {
    auto* data = static_cast<unsigned char*>(Take(count * item));
    const uint64_t pattern = 0x1122334455667788;
    ASSERT_TRUE(Cpu().Fill(data, &pattern, item, count).ok());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::memcmp(data + i * item, &pattern, static_cast<size_t>(item)), 0) << i;
    }
    for (int64_t i = 0; i < count * item; ++i) data[i] = static_cast<unsigned char>(i * 7);
    ASSERT_TRUE(Cpu().CopyOut(host.data(), data, count * item).ok());
    EXPECT_EQ(std::memcmp(host.data(), data, static_cast<size_t>(count * item)), 0);
    std::memset(data, 0, static_cast<size_t>(count * item));
    ASSERT_TRUE(Cpu().CopyIn(data, host.data(), count * item).ok());
    EXPECT_EQ(std::memcmp(host.data(), data, static_cast<size_t>(count * item)), 0);
    Give(data, count * item);
  }
}

TEST(CpuBackend, RefusesItemsOfOddSizes) {
  char data[6] = {};
  EXPECT_FALSE(Cpu().Fill(data, data, 3, 2).ok());
}

TEST(CpuBackend, RefusesAbsurdSizesWithTheBytesAsked) {
  const absl::Status status = Cpu().Allocate(INT64_MAX).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("9223372036854775807 B were asked for"));
}

TEST(CpuAllocator, CountsRequestedAndReservedApart) {
  ReleaseCachedMemory();
  const AllocatorStats before = CpuAllocatorStats();
  void* data = Take(5 * kMiB + 1);
  const AllocatorStats live = CpuAllocatorStats();
  EXPECT_EQ(live.requested_bytes - before.requested_bytes, 5 * kMiB + 1);
  EXPECT_GE(live.reserved_bytes - before.reserved_bytes, 5 * kMiB + 1);
  EXPECT_GE(live.peak_reserved_bytes, live.reserved_bytes);
  Give(data, 5 * kMiB + 1);
  EXPECT_EQ(CpuAllocatorStats().requested_bytes, before.requested_bytes);
  ReleaseCachedMemory();
  EXPECT_EQ(CpuAllocatorStats().reserved_bytes, before.reserved_bytes);
}

TEST(CpuAllocator, ReservesAtMostAQuarterAndTheStaggerMore) {
  ReleaseCachedMemory();
  for (int64_t bytes = 1000; bytes < 40 * kMiB; bytes = bytes * 11 / 10) {
    const int64_t before = CpuAllocatorStats().reserved_bytes;
    void* data = Take(bytes);
    EXPECT_LE(CpuAllocatorStats().reserved_bytes - before, bytes + bytes / 4 + 72 * 1024) << bytes;
    Give(data, bytes);
    ReleaseCachedMemory();
  }
}

TEST(CpuAllocator, ReusesAFreedBlockForThisSizeAndSlightlySmaller) {
  for (const int64_t bytes : {int64_t{5000}, int64_t{100000}, 7 * kMiB}) {
    ReleaseCachedMemory();
    void* first = Take(bytes);
    Give(first, bytes);
    const int64_t reserved = CpuAllocatorStats().reserved_bytes;
    void* same = Take(bytes);
    EXPECT_EQ(same == first, kCaches);
    Give(same, bytes);
    void* smaller = Take(bytes * 15 / 16);
    EXPECT_EQ(smaller == first, kCaches);
    Give(smaller, bytes * 15 / 16);
    EXPECT_EQ(CpuAllocatorStats().reserved_bytes, reserved);
  }
}

TEST(CpuAllocator, DoesNotSpendALargeBlockOnASmallRequest) {
  ReleaseCachedMemory();
  void* large = Take(8 * kMiB);
  Give(large, 8 * kMiB);
  void* small = Take(5 * kMiB);
  EXPECT_NE(small, large);
  Give(small, 5 * kMiB);
}

TEST(CpuAllocator, HoldsABoundedMultipleOfTheMostThatLived) {
  ReleaseCachedMemory();
  const int64_t before = CpuAllocatorStats().reserved_bytes;
  // Sizes 25 % apart never reuse each other's blocks; unbounded, the cache would hold their sum.
  int64_t greatest = 0;
  for (int64_t bytes = 20 * kMiB; bytes < 200 * kMiB; bytes = bytes * 5 / 4) {
    Give(Take(bytes), bytes);
    greatest = bytes;
    EXPECT_LE(CpuAllocatorStats().reserved_bytes - before, greatest * 2 + 66 * kMiB);
  }
  ReleaseCachedMemory();
}

TEST(CpuAllocator, EqualLargeBuffersBeginAtDifferentPlacesOfAPage) {
  ReleaseCachedMemory();
  for (const int64_t bytes : {64 * int64_t{1024}, 4 * kMiB}) {
    std::vector<void*> live;
    std::set<uintptr_t> places;
    for (int i = 0; i < 8; ++i) {
      live.push_back(Take(bytes));
      places.insert(reinterpret_cast<uintptr_t>(live.back()) % 4096);
    }
    if (kCaches) {
      EXPECT_EQ(places.size(), 8u) << bytes;
    }
    for (void* data : live) Give(data, bytes);
  }
}

TEST(CpuAllocator, TakesTurnsAmongManyThreads) {
  const int64_t before = CpuAllocatorStats().requested_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = 1000 + (i * 7919 + t * 104729) % 200000;
        auto* data = static_cast<unsigned char*>(Take(bytes));
        data[0] = data[bytes - 1] = static_cast<unsigned char>(t);
        std::this_thread::yield();
        ASSERT_EQ(data[0], t);
        ASSERT_EQ(data[bytes - 1], t);
        Give(data, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CpuAllocatorStats().requested_bytes, before);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(CpuAllocatorDeathTest, NoticesABlockFreedTwice) {
  void* data = Take(5000);
  Give(data, 5000);
  EXPECT_DEATH(Give(data, 5000), "freed twice");
}

int64_t AddressSpace() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void LimitAddressSpace(int64_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(bytes);
  setrlimit(RLIMIT_AS, &limit);
}

// In a child process, because the limit cannot be lifted again.
TEST(CpuAllocatorDeathTest, GivesItsCacheBackBeforeItGivesUp) {
  EXPECT_EXIT(
      {
        ReleaseCachedMemory();
        void* pin = Take(600 * kMiB);  // so that the bound on the cache does not trim
        Give(Take(200 * kMiB), 200 * kMiB);
        Give(pin, 600 * kMiB);
        LimitAddressSpace(AddressSpace() + 10 * kMiB);  // nothing more than what is held
        const bool fits = Cpu().Allocate(400 * kMiB).ok();
        const bool too_much =
            Cpu().Allocate(500 * kMiB).status().code() == absl::StatusCode::kResourceExhausted;
        std::exit(fits && too_much ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}
#endif

TEST(MetaBackend, HasSizesAndNoElements) {
  Backend& meta = ExistingBackend(kMeta);
  EXPECT_EQ(*meta.Allocate(int64_t{1} << 60), nullptr);
  meta.Free(nullptr, int64_t{1} << 60);
  char byte = 0;
  EXPECT_EQ(std::string(meta.CopyOut(&byte, nullptr, 1).message()),
            "meta: cannot copy out: meta has sizes and no elements");
  EXPECT_FALSE(meta.CopyIn(nullptr, &byte, 1).ok());
  EXPECT_FALSE(meta.Fill(nullptr, &byte, 1, 1).ok());
  EXPECT_FALSE(meta.Gemm(GemmArgs{}).ok());
  EXPECT_TRUE(meta.Synchronize().ok());
}

}  // namespace
}  // namespace tally
