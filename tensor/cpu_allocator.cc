#include "tally/tensor/cpu_allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "tally/tensor/check.h"
#include "tally/tensor/small_block.h"

namespace tally::internal {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMapFrom = kHugePage;  // class size from which blocks are mapped
constexpr int64_t kStaggerFrom = int64_t{32} << 10;
constexpr int kStaggerSteps = 16;
constexpr int64_t kSlack = int64_t{64} << 20;

// Room for the stagger. Within a page the offsets step by 256 B; mapped blocks also step by a page.
int64_t StaggerStep(int64_t class_bytes) {
  if (!kBlocksAreCached || class_bytes < kStaggerFrom) return 0;
  return class_bytes < kMapFrom ? 256 : 4096 + 256;
}

// Staggered blocks count their offsets from a page.
std::align_val_t AlignmentOf(int64_t class_bytes) {
  return std::align_val_t{class_bytes < kStaggerFrom ? size_t{64} : size_t{4096}};
}

// Bytes at a huge-page border, or null.
void* Map(int64_t bytes) {
  const size_t padded = static_cast<size_t>(bytes + kHugePage);
  void* map = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(map);
  char* end = begin + padded;
  char* base = begin + (-reinterpret_cast<uintptr_t>(begin) & (kHugePage - 1));
  if (base != begin) munmap(begin, static_cast<size_t>(base - begin));
  if (base + bytes != end) munmap(base + bytes, static_cast<size_t>(end - (base + bytes)));
  madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // advice: may be refused
  return base;
}

bool IsMapped(int64_t bytes) { return kBlocksAreCached && bytes >= kMapFrom; }

}  // namespace

CpuAllocator& CpuAllocator::Get() {
  static CpuAllocator& allocator = *new CpuAllocator;
  return allocator;
}

int64_t CpuAllocator::LargestRequest() {
  static const int64_t limit = [] {
    const int64_t pages = sysconf(_SC_PHYS_PAGES);
    const int64_t page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? pages * page : int64_t{1} << 46;
  }();
  return limit;
}

// Class 8·e + f holds (8 + f)·2^(e+3) bytes: 64, 72, 80, ... 120, 128, 144, ...
int CpuAllocator::ClassOf(int64_t bytes) {
  if (bytes <= 64) return 0;
  const uint64_t last = static_cast<uint64_t>(bytes) - 1;
  const int e = std::bit_width(last) - 7;  // last in [64·2^e, 128·2^e)
  const int f = static_cast<int>(last >> (e + 3)) - 8;
  return 8 * e + f + 1;
}

int64_t CpuAllocator::ClassBytes(int size_class) {
  return int64_t{8 + size_class % 8} << (size_class / 8 + 3);
}

void* CpuAllocator::Allocate(int64_t bytes) {
  if (bytes > LargestRequest()) return nullptr;
  const int size_class = ClassOf(std::max<int64_t>(bytes, 1));
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* block = TakeCached(size_class);
  if (block == nullptr) block = NewBlock(size_class, bytes);
  if (block == nullptr) return nullptr;
  block->requested = bytes;
  requested_ += bytes;
  live_ += block->bytes;
  peak_live_ = std::max(peak_live_, live_);
  return reinterpret_cast<char*>(block) + kHeader;
}

void CpuAllocator::Free(void* data) {
  Block* block = reinterpret_cast<Block*>(static_cast<char*>(data) - kHeader);
  const std::lock_guard<std::mutex> lock(mutex_);
  TALLY_CHECK(block->requested >= 0) << "a block was freed twice";
  requested_ -= block->requested;
  live_ -= block->bytes;
  block->requested = -1;
  if (!kBlocksAreCached) return GiveBack(block);
  block->freed_at = ++tick_;
  FreeList& list = free_[block->size_class];
  block->newer = nullptr;
  block->older = list.newest;
  (list.newest == nullptr ? list.oldest : list.newest->newer) = block;
  list.newest = block;
}

void CpuAllocator::ReleaseCached() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TrimTo(live_);
  peak_live_ = live_;
}

AllocatorStats CpuAllocator::Stats() {
  const int64_t small = SmallBytes(), small_reserved = SmallReservedBytes();
  const std::lock_guard<std::mutex> lock(mutex_);
  // Small blocks are never given back, so that the peaks add up.
  return {requested_ + small, reserved_ + small_reserved, peak_reserved_ + small_reserved};
}

CpuAllocator::Block* CpuAllocator::TakeCached(int size_class) {
  for (int c = size_class; c <= size_class + 1; ++c) {
    if (Block* block = free_[c].newest; block != nullptr) {
      Unlink(block);
      return block;
    }
  }
  return nullptr;
}

// Memory from the system for one block of the class; the cache pays for it where it must.
CpuAllocator::Block* CpuAllocator::NewBlock(int size_class, int64_t requested) {
  const int64_t class_bytes = ClassBytes(size_class);
  const int64_t step = StaggerStep(class_bytes);
  int64_t bytes = kHeader + class_bytes + step * (kStaggerSteps - 1);
  if (!kBlocksAreCached) bytes = kHeader + requested;  // so that overruns are seen
  if (IsMapped(bytes)) bytes = (bytes + 4095) / 4096 * 4096;
  TrimTo(std::max(peak_live_, live_ + bytes) / 2 * 3 + kSlack - bytes);
  void* base = nullptr;
  for (int attempt = 0; attempt < 2 && base == nullptr; ++attempt) {
    if (attempt == 1) TrimTo(live_);
    base = IsMapped(bytes)
               ? Map(bytes)
               : ::operator new(static_cast<size_t>(bytes), AlignmentOf(class_bytes), std::nothrow);
  }
  if (base == nullptr) return nullptr;
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  const int64_t offset = step * static_cast<int64_t>(stagger_ % kStaggerSteps);
  if (step != 0) ++stagger_;
  Block* block = new (static_cast<char*>(base) + offset) Block{};
  block->base = base;
  block->bytes = bytes;
  block->size_class = size_class;
  return block;
}

void CpuAllocator::Unlink(Block* block) {
  FreeList& list = free_[block->size_class];
  (block->newer == nullptr ? list.newest : block->newer->older) = block->older;
  (block->older == nullptr ? list.oldest : block->older->newer) = block->newer;
}

void CpuAllocator::GiveBack(Block* block) {
  reserved_ -= block->bytes;
  void* base = block->base;
  const int size_class = block->size_class;
  if (IsMapped(block->bytes)) {
    munmap(base, static_cast<size_t>(block->bytes));
  } else {
    ::operator delete(base, AlignmentOf(ClassBytes(size_class)));
  }
}

// Gives the longest unused blocks back until no more than `limit` bytes are held.
void CpuAllocator::TrimTo(int64_t limit) {
  while (reserved_ > live_ && reserved_ > limit) {
    Block* oldest = nullptr;
    for (const FreeList& list : free_) {
      if (list.oldest != nullptr &&
          (oldest == nullptr || list.oldest->freed_at < oldest->freed_at)) {
        oldest = list.oldest;
      }
    }
    Unlink(oldest);
    GiveBack(oldest);
  }
}

}  // namespace tally::internal
