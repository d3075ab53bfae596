#include "tally/tensor/small_block.h"

#include <cstdlib>
#include <mutex>
#include <new>

#include "tally/tensor/check.h"
#include "tally/tensor/storage.h"

namespace tally::internal {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int kNumClasses = kMaxSmallBlock / kAlignment;
constexpr int64_t kSlabBytes = 64 * 1024;
constexpr int32_t kBatch = 64;        // blocks moved between a thread and the shared lists at once
constexpr int32_t kMaxCached = 4096;  // free blocks of one class that a thread keeps

int ClassOf(int64_t bytes) { return bytes <= 0 ? 0 : static_cast<int>((bytes - 1) / kAlignment); }
int64_t ClassBytes(int c) { return (c + 1) * kAlignment; }

struct FreeBlock {
  FreeBlock* next;
};

struct FreeList {
  FreeBlock* head = nullptr;
  int32_t count = 0;

  void Push(void* block) {
    head = new (block) FreeBlock{head};
    ++count;
  }
  void* Pop() {
    FreeBlock* block = head;
    head = block->next;
    --count;
    return block;
  }
};

// One thread's lists. Trivially constructed and destroyed, so that blocks may still be freed while
// and after the thread's other thread_locals are destroyed: then `limit` is 0 and every call takes
// the slow path to the shared lists.
struct ThreadCache {
  enum State : int8_t { kNew, kLive, kDead };
  FreeList lists[kNumClasses];
  int32_t limit = 0;
  State state = kNew;
  std::atomic<int64_t> requested{0};  // written by this thread only
  ThreadCache* previous = nullptr;    // all live caches are linked
  ThreadCache* next = nullptr;
};
constinit thread_local ThreadCache cache;

// What the threads share; never destroyed.
struct Shared {
  std::mutex mutex;
  FreeList lists[kNumClasses];
  ThreadCache* caches = nullptr;
  int64_t requested = 0;  // of threads that have ended
  int64_t reserved = 0;
};
constinit Shared shared;

// Gives everything back when its thread ends.
struct Reaper {
  ~Reaper() {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    cache.state = ThreadCache::kDead;
    cache.limit = 0;
    for (int c = 0; c < kNumClasses; ++c) {
      while (cache.lists[c].count > 0) shared.lists[c].Push(cache.lists[c].Pop());
    }
    shared.requested += cache.requested.load(std::memory_order_relaxed);
    cache.requested.store(0, std::memory_order_relaxed);
    (cache.previous == nullptr ? shared.caches : cache.previous->next) = cache.next;
    if (cache.next != nullptr) cache.next->previous = cache.previous;
  }
};

void Register() {
  thread_local Reaper reaper;
  (void)&reaper;
  const std::lock_guard<std::mutex> lock(shared.mutex);
  cache.state = ThreadCache::kLive;
  cache.limit = kMaxCached;
  cache.next = shared.caches;
  if (cache.next != nullptr) cache.next->previous = &cache;
  shared.caches = &cache;
}

// Cuts a new slab into blocks of one class. The shared mutex is held.
void CarveSlab(int c) {
  char* slab = static_cast<char*>(std::aligned_alloc(kAlignment, kSlabBytes));
  if (slab == nullptr) throw std::bad_alloc();
  shared.reserved += kSlabBytes;
  const int64_t count = kSlabBytes / ClassBytes(c);
  for (int64_t i = count - 1; i >= 0; --i) shared.lists[c].Push(slab + i * ClassBytes(c));
}

[[gnu::noinline]] void* AllocateSlow(int c) {
  if (cache.state == ThreadCache::kNew) Register();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.lists[c].count == 0) CarveSlab(c);
  if (cache.state == ThreadCache::kLive) {
    FreeList& list = cache.lists[c];
    while (list.count < kBatch && shared.lists[c].count > 1) list.Push(shared.lists[c].Pop());
  }
  return shared.lists[c].Pop();
}

[[gnu::noinline]] void FreeSlow(void* block, int c) {
  if (cache.state == ThreadCache::kNew) Register();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.lists[c].Push(block);
  if (cache.state == ThreadCache::kLive) {
    FreeList& list = cache.lists[c];
    while (list.count > kMaxCached - kBatch) shared.lists[c].Push(list.Pop());
  }
}

}  // namespace

void* AllocateSmall(int64_t bytes) {
  TALLY_CHECK(bytes <= kMaxSmallBlock);
  if constexpr (!kBlocksAreCached) {
    return ::operator new (static_cast<size_t>(bytes), std::align_val_t{kAlignment});
  }
  const int c = ClassOf(bytes);
  FreeList& list = cache.lists[c];
  return list.head != nullptr ? list.Pop() : AllocateSlow(c);
}

void FreeSmall(void* block, int64_t bytes) {
  if constexpr (!kBlocksAreCached) {
    return ::operator delete (block, static_cast<size_t>(bytes), std::align_val_t{kAlignment});
  }
  const int c = ClassOf(bytes);
  FreeList& list = cache.lists[c];
  if (list.count < cache.limit) {
    list.Push(block);
  } else {
    FreeSlow(block, c);
  }
}

void CountSmallBytes(int64_t delta) {
  if (cache.state == ThreadCache::kNew) Register();
  if (cache.state == ThreadCache::kDead) {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    shared.requested += delta;
    return;
  }
  // A plain load and store: no other thread writes, and no locked instruction is spent.
  cache.requested.store(cache.requested.load(std::memory_order_relaxed) + delta,
                        std::memory_order_relaxed);
}

int64_t SmallBytes() {
  const std::lock_guard<std::mutex> lock(shared.mutex);
  int64_t sum = shared.requested;
  for (const ThreadCache* c = shared.caches; c != nullptr; c = c->next) {
    sum += c->requested.load(std::memory_order_relaxed);
  }
  return sum;
}

int64_t SmallReservedBytes() {
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return kBlocksAreCached ? shared.reserved : 0;
}

}  // namespace tally::internal
