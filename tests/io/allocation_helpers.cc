#include "allocation_helpers.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> largest_block{0};
}  // namespace

// The other forms of new and delete call these.
void* operator new(size_t bytes) {
  size_t seen = largest_block.load(std::memory_order_relaxed);
  while (bytes > seen && !largest_block.compare_exchange_weak(seen, bytes)) {
  }
  void* const block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace tally {

AllocationWatch::AllocationWatch() { largest_block = 0; }
size_t AllocationWatch::largest() const { return largest_block; }

}  // namespace tally
