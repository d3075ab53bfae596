#include "tally/tensor/caching_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "tally/tensor/philox.h"

namespace tally::internal {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Addresses that nothing is ever read from or written to.
class FakeDevice final : public SegmentSource {
 public:
  explicit FakeDevice(int64_t bytes) : free_(bytes) {}
  void* Take(int64_t bytes) override {
    if (bytes > free_) return nullptr;
    free_ -= bytes;
    taken.push_back(bytes);
    void* segment = reinterpret_cast<void*>(next_);
    next_ += bytes + kMiB;
    live_[segment] = bytes;
    return segment;
  }
  void GiveBack(void* segment, int64_t bytes) override {
    ASSERT_EQ(live_.at(segment), bytes);
    live_.erase(segment);
    free_ += bytes;
  }

  // Whether [data, data + bytes) lies in one segment.
  bool Holds(const void* data, int64_t bytes) const {
    auto it = live_.upper_bound(const_cast<void*>(data));
    if (it == live_.begin()) return false;
    --it;
    return static_cast<const char*>(data) + bytes <= static_cast<char*>(it->first) + it->second;
  }
  size_t segments() const { return live_.size(); }

  std::vector<int64_t> taken;

 private:
  int64_t free_;
  uint64_t next_ = uint64_t{1} << 40;
  std::map<void*, int64_t> live_;
};

TEST(CachingPool, CountsWhatWasAskedForApartFromWhatIsHeld) {
  FakeDevice device(1000 * kMiB);
  CachingPool pool(device);
  void* a = pool.Allocate(100);
  EXPECT_EQ(pool.Stats().requested_bytes, 100);
  EXPECT_EQ(pool.Stats().reserved_bytes, 2 * kMiB);
  pool.Free(a);
  EXPECT_EQ(pool.Stats().requested_bytes, 0);
  EXPECT_EQ(pool.Stats().reserved_bytes, 2 * kMiB);
  pool.ReleaseCached();
  EXPECT_EQ(pool.Stats().reserved_bytes, 0);
  EXPECT_EQ(pool.Stats().peak_reserved_bytes, 2 * kMiB);
}

TEST(CachingPool, TakesSegmentsBySize) {
  FakeDevice device(1000 * kMiB);
  CachingPool pool(device);
  pool.Allocate(1);
  pool.Allocate(kMiB);           // of the same segment of 2 MiB: 512 B are in use
  pool.Allocate(kMiB + 1);       // of 20 MiB
  pool.Allocate(10 * kMiB);      // of the same
  pool.Allocate(10 * kMiB + 1);  // its own, of 12 MiB
  EXPECT_THAT(device.taken, ::testing::ElementsAre(2 * kMiB, 20 * kMiB, 12 * kMiB));
}

TEST(CachingPool, GivesAFreedBlockAtOnceAndTheSmallestThatFits) {
  FakeDevice device(1000 * kMiB);
  CachingPool pool(device);
  void* large = pool.Allocate(40 * kMiB);
  void* middle = pool.Allocate(30 * kMiB);
  pool.Free(large);
  pool.Free(middle);
  EXPECT_EQ(pool.Allocate(30 * kMiB), middle);
  EXPECT_EQ(pool.Allocate(31 * kMiB), large);
  EXPECT_EQ(device.taken.size(), 2u);
}

TEST(CachingPool, JoinsNeighbours) {
  FakeDevice device(1000 * kMiB);
  CachingPool pool(device);
  void* a = pool.Allocate(4 * kMiB);
  void* b = pool.Allocate(4 * kMiB);
  void* c = pool.Allocate(4 * kMiB);
  EXPECT_EQ(device.taken.size(), 1u);
  pool.Free(a);
  pool.Free(c);
  pool.Free(b);
  EXPECT_EQ(pool.LargestCached(), 20 * kMiB);
  pool.ReleaseCached();
  EXPECT_EQ(device.segments(), 0u);
}

TEST(CachingPool, GivesCachedSegmentsBackBeforeItFails) {
  FakeDevice device(100 * kMiB);
  CachingPool pool(device);
  pool.Free(pool.Allocate(60 * kMiB));
  EXPECT_NE(pool.Allocate(80 * kMiB), nullptr);
  EXPECT_EQ(pool.Allocate(30 * kMiB), nullptr);
  EXPECT_EQ(pool.Stats().requested_bytes, 80 * kMiB);
  EXPECT_EQ(pool.Allocate(-1), nullptr);
  EXPECT_EQ(pool.Allocate(INT64_MAX), nullptr);
}

TEST(CachingPool, WithoutCachingTakesJustWhatIsAskedForAndGivesItBack) {
  FakeDevice device(1000);
  CachingPool pool(device, /*caching=*/false);
  void* a = pool.Allocate(601);
  EXPECT_EQ(pool.Allocate(600), nullptr);
  pool.Free(a);
  EXPECT_EQ(device.segments(), 0u);
  void* none = pool.Allocate(0);
  EXPECT_NE(none, nullptr);
  pool.Free(none);
  EXPECT_THAT(device.taken, ::testing::ElementsAre(601, 1));
}

TEST(CachingPool, NeverHandsOutAByteTwice) {
  FakeDevice device(600 * kMiB);
  CachingPool pool(device);
  std::map<char*, int64_t> live;  // in use, by address
  int64_t requested = 0;
  auto word = [at = uint64_t{0}]() mutable { return RandomBits(7, 0, at++); };
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || word() % 5 < 3) {
      const int64_t bytes = static_cast<int64_t>(word() % (uint64_t{1} << (word() % 26)));
      void* data = pool.Allocate(bytes);
      if (data == nullptr) continue;  // full
      char* first = static_cast<char*>(data);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(first) % 512, 0u);
      ASSERT_TRUE(device.Holds(first, bytes));
      const auto next = live.lower_bound(first);
      ASSERT_TRUE(next == live.end() || first + bytes <= next->first);
      if (next != live.begin()) {
        const auto before = std::prev(next);
        ASSERT_LE(before->first + before->second, first);
      }
      ASSERT_TRUE(live.emplace(first, bytes).second);
      requested += bytes;
    } else {
      auto it = live.begin();
      std::advance(it, word() % live.size());
      pool.Free(it->first);
      requested -= it->second;
      live.erase(it);
    }
    ASSERT_EQ(pool.Stats().requested_bytes, requested);
  }
  for (const auto& [data, bytes] : live) pool.Free(data);
  pool.ReleaseCached();
  EXPECT_EQ(device.segments(), 0u);
  EXPECT_EQ(pool.Stats().reserved_bytes, 0);
}

}  // namespace
}  // namespace tally::internal
