// The caching allocator of cpu memory. Private to tensor/.
#ifndef TALLY_TENSOR_CPU_ALLOCATOR_H_
#define TALLY_TENSOR_CPU_ALLOCATOR_H_

#include <array>
#include <cstdint>
#include <mutex>

#include "tally/tensor/backend.h"

namespace tally::internal {

// Blocks come in size classes an eighth of a power of two apart and are kept when freed; a request
// takes the most recently freed block of its class or of the next, so at most a quarter is wasted.
// Blocks from 2 MiB on are mapped at a huge-page border and advised as huge pages. Larger blocks
// begin at varying offsets from such borders, so that equal buffers do not meet in the same cache
// sets. Bytes held never pass 1.5 times the most that lived at once plus 64 MiB: beyond that the
// longest unused blocks go back to the system. Thread safe.
class CpuAllocator {
 public:
  static CpuAllocator& Get();  // never destroyed

  // 64-byte aligned; null when the system has no memory, even after the cache went back to it.
  void* Allocate(int64_t bytes);
  void Free(void* data);
  void ReleaseCached();
  AllocatorStats Stats();

  // A greater request is refused unseen: it passes the memory of this machine.
  static int64_t LargestRequest();

 private:
  // In front of the data; linked while the block is free.
  struct Block {
    void* base;         // where the system's memory begins
    int64_t bytes;      // of the system's memory
    int64_t requested;  // -1 while free
    uint64_t freed_at;  // tick of the last free
    Block* newer;
    Block* older;
    int32_t size_class;
  };
  static constexpr int64_t kHeader = 64;
  static_assert(sizeof(Block) <= kHeader);
  struct FreeList {
    Block* newest = nullptr;
    Block* oldest = nullptr;
  };
  static constexpr int kNumClasses = 8 * 58;

  static int ClassOf(int64_t bytes);
  static int64_t ClassBytes(int size_class);
  Block* NewBlock(int size_class, int64_t requested);
  Block* TakeCached(int size_class);
  void Unlink(Block* block);
  void GiveBack(Block* block);
  void TrimTo(int64_t limit);

  std::mutex mutex_;
  std::array<FreeList, kNumClasses> free_;
  uint64_t tick_ = 0;
  uint64_t stagger_ = 0;
  int64_t requested_ = 0;
  int64_t reserved_ = 0;
  int64_t peak_reserved_ = 0;
  int64_t live_ = 0;  // system's bytes of blocks in use
  int64_t peak_live_ = 0;
};

}  // namespace tally::internal

#endif  // TALLY_TENSOR_CPU_ALLOCATOR_H_
