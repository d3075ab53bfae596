// Small blocks: storage headers with their data, and tensor records, from per-thread free lists.
// AllocateSmall and FreeSmall are declared in "tally/tensor/storage.h". Private to tensor/.
#ifndef TALLY_TENSOR_SMALL_BLOCK_H_
#define TALLY_TENSOR_SMALL_BLOCK_H_

#include <cstdint>

namespace tally::internal {

// Under AddressSanitizer every block is its own, so that overruns and late uses are seen.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kBlocksAreCached = false;
#else
inline constexpr bool kBlocksAreCached = true;
#endif

// Adds to the requested bytes that live in small blocks. Cheap: a counter of this thread.
void CountSmallBytes(int64_t delta);
// Their sum over all threads.
int64_t SmallBytes();
// Bytes taken from the system for small blocks, live or free. They are never given back.
int64_t SmallReservedBytes();

}  // namespace tally::internal

#endif  // TALLY_TENSOR_SMALL_BLOCK_H_
