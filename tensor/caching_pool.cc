#include "tally/tensor/caching_pool.h"

#include <algorithm>

#include "tally/tensor/check.h"

namespace tally::internal {
namespace {

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

int64_t SegmentBytes(int64_t bytes) {
  if (bytes <= CachingPool::kSmallRequest) return CachingPool::kSmallSegment;
  if (bytes <= CachingPool::kMiddleRequest) return CachingPool::kMiddleSegment;
  return RoundUp(bytes, CachingPool::kLargeRound);
}

}  // namespace

CachingPool::~CachingPool() {
  ReleaseCachedLocked();
  for (const auto& [data, block] : used_) delete block;
  for (const FreeBlocks* blocks : {&small_, &large_}) {
    for (const Block* block : *blocks) delete block;
  }
}

void* CachingPool::Allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  // What no device has; and rounding must not overflow.
  if (bytes < 0 || bytes > int64_t{1} << 60) return nullptr;
  const int64_t rounded =
      caching_ ? RoundUp(std::max<int64_t>(bytes, 1), kRound) : std::max<int64_t>(bytes, 1);
  const bool small = caching_ && rounded <= kSmallRequest;
  Block* block = FindFree(rounded, small);
  if (block == nullptr) block = NewSegment(caching_ ? SegmentBytes(rounded) : rounded, small);
  if (block == nullptr) return nullptr;
  Cut(block, rounded);
  block->used = true;
  block->requested = bytes;
  stats_.requested_bytes += bytes;
  used_.emplace(block->data, block);
  return block->data;
}

void CachingPool::Free(void* data) {
  const std::lock_guard lock(mutex_);
  const auto it = used_.find(data);
  TALLY_CHECK(it != used_.end()) << "freed memory that is not in use";
  Block* block = it->second;
  used_.erase(it);
  stats_.requested_bytes -= block->requested;
  block->used = false;
  if (block->after != nullptr && !block->after->used) {
    FreeOf(*block->after).erase(block->after);
    Join(block, block->after);
  }
  if (Block* before = block->before; before != nullptr && !before->used) {
    FreeOf(*before).erase(before);
    Join(before, block);
    block = before;
  }
  FreeOf(*block).insert(block);
  if (!caching_) ReleaseCachedLocked();
}

void CachingPool::ReleaseCached() {
  const std::lock_guard lock(mutex_);
  ReleaseCachedLocked();
}

AllocatorStats CachingPool::Stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

int64_t CachingPool::LargestCached() const {
  const std::lock_guard lock(mutex_);
  int64_t largest = 0;
  for (const FreeBlocks* blocks : {&small_, &large_}) {
    if (!blocks->empty()) largest = std::max(largest, (*blocks->rbegin())->bytes);
  }
  return largest;
}

CachingPool::Block* CachingPool::FindFree(int64_t bytes, bool small) {
  Block wanted;
  wanted.bytes = bytes;  // with the null address below every block of that size
  FreeBlocks& blocks = small ? small_ : large_;
  const auto it = blocks.lower_bound(&wanted);
  if (it == blocks.end()) return nullptr;
  Block* block = *it;
  blocks.erase(it);
  return block;
}

CachingPool::Block* CachingPool::NewSegment(int64_t bytes, bool small) {
  void* segment = source_.Take(bytes);
  if (segment == nullptr) {
    ReleaseCachedLocked();
    segment = source_.Take(bytes);
    if (segment == nullptr) return nullptr;
  }
  stats_.reserved_bytes += bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  auto* block = new Block;
  block->data = static_cast<char*>(segment);
  block->bytes = bytes;
  block->small = small;
  return block;
}

void CachingPool::Cut(Block* block, int64_t bytes) {
  const int64_t rest = block->bytes - bytes;
  // A small rest of a large block would lie idle: only large requests look there.
  if (rest < (block->small ? kRound : kSmallRequest + 1)) return;
  auto* right = new Block;
  right->data = block->data + bytes;
  right->bytes = rest;
  right->small = block->small;
  right->before = block;
  right->after = block->after;
  if (right->after != nullptr) right->after->before = right;
  block->after = right;
  block->bytes = bytes;
  FreeOf(*right).insert(right);
}

void CachingPool::Join(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after != nullptr) left->after->before = left;
  delete right;
}

void CachingPool::ReleaseCachedLocked() {
  for (FreeBlocks* blocks : {&small_, &large_}) {
    for (auto it = blocks->begin(); it != blocks->end();) {
      Block* block = *it;
      if (block->before != nullptr || block->after != nullptr) {
        ++it;
        continue;
      }
      it = blocks->erase(it);
      stats_.reserved_bytes -= block->bytes;
      source_.GiveBack(block->data, block->bytes);
      delete block;
    }
  }
}

}  // namespace tally::internal
