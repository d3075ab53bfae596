#include "allocation_helpers.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<size_t> largest_block{0};
}  // namespace

// Every form for ordinary alignment: a sanitizer has its own of each, and they must not be mixed.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  size_t seen = largest_block.load(std::memory_order_relaxed);
  while (bytes > seen && !largest_block.compare_exchange_weak(seen, bytes)) {
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(size_t bytes) {
  void* const block = operator new(bytes, std::nothrow);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { std::free(block); }

namespace tally {

AllocationWatch::AllocationWatch() { largest_block = 0; }
size_t AllocationWatch::largest() const { return largest_block; }

}  // namespace tally
