#ifndef TALLY_TESTS_CUDA_SIM_HOST_MEMORY_H_
#define TALLY_TESTS_CUDA_SIM_HOST_MEMORY_H_

// Pinned memory, and the shared memory of a block: both end at a guard page.

#include <cstddef>
#include <cstdint>
#include <string>

namespace tally_sim::internal {

// Dynamic shared memory of a block: without asking, and after cudaFuncSetAttribute.
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr size_t kMaxSharedBytes = 227 << 10;

void* AllocatePinned(size_t bytes);
bool FreePinned(void* pointer);  // false if it is none
// True up to and including one past the last byte.
bool IsPinned(const void* pointer);

// Open sets the size for the blocks to come; Poison begins a block and CheckShared ends it with a
// report or nothing. Close makes all of it inaccessible.
void OpenShared(size_t bytes);
void PoisonShared();
std::string CheckShared();
void CloseShared();
unsigned char* SharedBase();

// What an access was that faulted at `address`; empty if it is not in such memory.
std::string DescribePinnedFault(uintptr_t address);
std::string DescribeSharedFault(uintptr_t address, bool in_kernel);

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_HOST_MEMORY_H_
