// CachingPool: blocks of device memory for reuse, cut from larger segments.
//
// A freed block goes to the next request that it fits, at once: every user of a pool puts its work
// on one stream, so what was queued before the free runs before what is queued after it. Requests
// are rounded up to 512 B; those of up to 1 MiB share segments of 2 MiB, those of up to 10 MiB
// segments of 20 MiB, and larger ones have segments of their own, rounded up to 2 MiB. The smallest
// block that fits is taken, the lowest in address among equals, and cut where a useful rest
// remains; neighbours that are free again are joined. When the device has no more, cached segments
// are given back and the request is tried once more.
#ifndef TALLY_TENSOR_CACHING_POOL_H_
#define TALLY_TENSOR_CACHING_POOL_H_

#include <cstdint>
#include <mutex>
#include <set>
#include <unordered_map>

#include "tally/tensor/backend.h"

namespace tally::internal {

// Where segments come from.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  virtual void* Take(int64_t bytes) = 0;  // null: there is no more
  virtual void GiveBack(void* segment, int64_t bytes) = 0;
};

class CachingPool {
 public:
  static constexpr int64_t kRound = 512;
  static constexpr int64_t kSmallRequest = int64_t{1} << 20, kSmallSegment = int64_t{2} << 20;
  static constexpr int64_t kMiddleRequest = int64_t{10} << 20, kMiddleSegment = int64_t{20} << 20;
  static constexpr int64_t kLargeRound = int64_t{2} << 20;

  // `caching` false: every request is a segment of just its bytes, given back when freed; for tools
  // that watch each allocation. The source must outlive the pool.
  explicit CachingPool(SegmentSource& source, bool caching = true)
      : source_(source), caching_(caching) {}
  // Gives back the segments that nothing of is in use.
  ~CachingPool();
  CachingPool(const CachingPool&) = delete;
  CachingPool& operator=(const CachingPool&) = delete;

  // Null when the source has no more, even after the cached segments went back. bytes = 0 gives a
  // block as well.
  void* Allocate(int64_t bytes);
  void Free(void* data);
  // Segments of which nothing is in use.
  void ReleaseCached();

  AllocatorStats Stats() const;
  // Of the cached blocks, which a request may be too large for though their sum is not.
  int64_t LargestCached() const;

 private:
  struct Block {
    char* data = nullptr;
    int64_t bytes = 0;
    int64_t requested = 0;
    bool used = false;
    bool small = false;                         // of a segment for small requests
    Block *before = nullptr, *after = nullptr;  // neighbours in its segment
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  using FreeBlocks = std::set<Block*, BySize>;

  FreeBlocks& FreeOf(const Block& block) { return block.small ? small_ : large_; }
  Block* FindFree(int64_t bytes, bool small);
  Block* NewSegment(int64_t bytes, bool small);
  void Cut(Block* block, int64_t bytes);
  void Join(Block* left, Block* right);
  void ReleaseCachedLocked();

  SegmentSource& source_;
  const bool caching_;
  mutable std::mutex mutex_;
  FreeBlocks small_, large_;
  std::unordered_map<void*, Block*> used_;
  AllocatorStats stats_;
};

}  // namespace tally::internal

#endif  // TALLY_TENSOR_CACHING_POOL_H_
