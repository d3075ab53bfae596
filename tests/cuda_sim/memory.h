#ifndef TALLY_TESTS_CUDA_SIM_MEMORY_H_
#define TALLY_TESTS_CUDA_SIM_MEMORY_H_

// Device memory: one range of addresses, reserved once and mapped twice from one file in memory:
// the addresses that programs see are inaccessible but for those of allocations that kernels are
// using, and a second view of the same pages, at a fixed distance, is always open to the runtime
// itself. So a copy needs no change of protection, and a kernel one call to open each allocation it
// uses and one, shared by all that ran together, to close them.
//
//   page ....................... page | guard page (never open)
//   slack, then at most 4095 bytes    | addresses go up; each is given out once
//   [canary][ bytes       ][canary]
//
// An allocation begins 256-byte aligned as CUDA promises and as far to the right as that allows.

#include <cstddef>
#include <cstdint>
#include <string>

#include "state.h"

namespace tally_sim::internal {

struct Allocation {
  uintptr_t begin = 0;                   // what the program got
  size_t bytes = 0;                      // what it asked for
  uintptr_t region = 0, region_end = 0;  // its pages; the guard page follows
  enum class State { kPending, kLive, kFreed } state = State::kLive;
  bool open = false;
  uintptr_t end() const { return begin + bytes; }
};

// "allocation 3 (1024 bytes)", counted from 1 in the order they were made.
std::string Describe(const Allocation& allocation);

// Null when the device's memory does not hold `bytes` more, or addresses are used up. Pending
// memory is the program's from Activate() on.
Allocation* AllocateDevice(size_t bytes, bool pending);
void Activate(Allocation* allocation);

// Of the memory of the device, what is taken.
size_t DeviceBytesUsed();

// The allocation that begins at `pointer`, whatever its state; null if none does.
Allocation* FindBegin(const void* pointer);
// The allocation in whose pages or guard page `address` lies; null if none.
Allocation* FindAround(uintptr_t address);

// Marks as freed and gives the pages back. The report of a damaged canary, or empty.
std::string FreeDevice(Allocation* allocation);
// All of them, without checks.
void FreeAllDevice();

bool IsDevice(const void* pointer);  // in the reserved range

// Where the runtime itself reads and writes what programs know as `pointer`; host memory as is.
unsigned char* Alias(const void* pointer);

// Empty if all of the range lies in one live allocation, else what is wrong with it. True of host
// memory, too, unless the device reads it without being able to.
std::string CheckRange(const void* pointer, size_t bytes);

// Lets kernels use an allocation until CloseDevice(); what was open is checked by CheckCanaries.
void OpenDevice(Allocation* allocation);
// Opens those that `arguments` seem to point to: a saving, as the first access would open them too.
void OpenArguments(const void* arguments, size_t bytes);
void CloseDevice();
std::string CheckCanaries();

// What an access at `address`, which faulted, was: "read 4 bytes past the end of allocation 3
// (...)". Empty if the address is none of the simulator's.
std::string DescribeFault(uintptr_t address, bool write, bool known_write);
// True if the fault was only the first access of a kernel to a live allocation, which is now open.
bool OpenOnFault(uintptr_t address);

constexpr size_t kPage = 4096;
constexpr size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_MEMORY_H_
