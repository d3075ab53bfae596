// Memory on the host's side of the simulator: pinned memory, and the shared memory of blocks.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "host_memory.h"
#include "memory.h"

namespace tally_sim::internal {
namespace {

unsigned char* Reserve(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::perror("cuda_sim: cannot reserve memory");
    std::exit(5);
  }
  return static_cast<unsigned char*>(p);
}

struct Pinned {
  unsigned char* region;
  size_t region_bytes, bytes;
};
// By address.
std::map<const unsigned char*, Pinned>& AllPinned() {
  static auto& all = *new std::map<const unsigned char*, Pinned>;
  return all;
}

// The one that begins at or before `address`, or the end.
auto PinnedBefore(uintptr_t address) {
  auto it = AllPinned().upper_bound(reinterpret_cast<const unsigned char*>(address));
  return it == AllPinned().begin() ? AllPinned().end() : --it;
}

// The window that shared memory lies in, at its end, with a guard page on each side.
constexpr size_t kWindow = RoundUp(kMaxSharedBytes, kPage);
constexpr size_t kSharedAlign = 32;  // of wmma, the most that an instruction asks for
constexpr unsigned char kSharedCanary = 0xf5;

struct Shared {
  unsigned char* begin = Reserve(kWindow + 2 * kPage) + kPage;
  unsigned char* end = begin + kWindow;
  unsigned char* open = end;  // pages from here on
  unsigned char* base = end;  // what the kernel gets
  size_t bytes = 0;
};
Shared& TheShared() {
  static Shared& shared = *new Shared;
  return shared;
}

}  // namespace

void* AllocatePinned(size_t bytes) {
  Pinned pinned;
  pinned.bytes = bytes;
  pinned.region_bytes = RoundUp(std::max<size_t>(bytes, 1), kPage) + kPage;
  pinned.region = Reserve(pinned.region_bytes);
  mprotect(pinned.region, pinned.region_bytes - kPage, PROT_READ | PROT_WRITE);
  unsigned char* begin = pinned.region + pinned.region_bytes - kPage - RoundUp(bytes, 64);
  std::memset(begin, 0xff, bytes);
  AllPinned()[begin] = pinned;
  Counters& counters = GetState().counters;
  counters.pinned_bytes += bytes;
  counters.peak_pinned_bytes = std::max(counters.peak_pinned_bytes, counters.pinned_bytes);
  return begin;
}

bool FreePinned(void* pointer) {
  const auto found = AllPinned().find(static_cast<unsigned char*>(pointer));
  if (found == AllPinned().end()) return false;
  GetState().counters.pinned_bytes -= found->second.bytes;
  munmap(found->second.region, found->second.region_bytes);
  AllPinned().erase(found);
  return true;
}

bool IsPinned(const void* pointer) {
  const auto it = PinnedBefore(reinterpret_cast<uintptr_t>(pointer));
  return it != AllPinned().end() &&
         static_cast<const unsigned char*>(pointer) <= it->first + it->second.bytes;
}

std::string DescribePinnedFault(uintptr_t address) {
  const auto it = PinnedBefore(address);
  if (it == AllPinned().end()) return "";
  const auto end = reinterpret_cast<uintptr_t>(it->second.region) + it->second.region_bytes;
  if (address >= end) return "";
  return "out of bounds access " +
         Bytes(address - reinterpret_cast<uintptr_t>(it->first) - it->second.bytes) +
         " past the end of pinned memory (" + Bytes(it->second.bytes) + ")";
}

void OpenShared(size_t bytes) {
  Shared& s = TheShared();
  s.bytes = bytes;
  s.base = s.end - RoundUp(bytes, kSharedAlign);
  unsigned char* const open = s.end - RoundUp(bytes, kPage);
  if (open < s.open) {
    mprotect(open, static_cast<size_t>(s.open - open), PROT_READ | PROT_WRITE);
  } else if (open > s.open) {
    mprotect(s.open, static_cast<size_t>(open - s.open), PROT_NONE);
  }
  s.open = open;
  std::memset(s.open, kSharedCanary, static_cast<size_t>(s.base - s.open));
  std::memset(s.base + bytes, kSharedCanary, static_cast<size_t>(s.end - s.base) - bytes);
}

void PoisonShared() {
  const Shared& s = TheShared();
  if (s.bytes > 0) std::memset(s.base, 0xff, s.bytes);
}

std::string CheckShared() {
  const Shared& s = TheShared();
  const auto damaged = [](unsigned char byte) { return byte != kSharedCanary; };
  if (const auto* p = std::find_if(s.base + s.bytes, s.end, damaged); p != s.end) {
    return "out of bounds write " + Bytes(static_cast<size_t>(p - s.base) - s.bytes) +
           " past the end of shared memory (" + Bytes(s.bytes) + ")";
  }
  // Far before the start matters less than near it, and this runs after every block.
  unsigned char* const near = std::max(s.open, s.base - 256);
  if (const auto* p = std::find_if(near, s.base, damaged); p != s.base) {
    return "out of bounds write " + Bytes(static_cast<size_t>(s.base - p)) +
           " before the start of shared memory (" + Bytes(s.bytes) + ")";
  }
  return "";
}

void CloseShared() {
  Shared& s = TheShared();
  if (s.open == s.end) return;
  mprotect(s.open, static_cast<size_t>(s.end - s.open), PROT_NONE);
  s.open = s.base = s.end;
  s.bytes = 0;
}

unsigned char* SharedBase() { return TheShared().base; }

std::string DescribeSharedFault(uintptr_t address, bool in_kernel) {
  const Shared& s = TheShared();
  const auto begin = reinterpret_cast<uintptr_t>(s.begin), end = reinterpret_cast<uintptr_t>(s.end);
  if (address < begin - kPage || address >= end + kPage) return "";
  if (!in_kernel) return "host access to shared memory of a block";
  const auto base = reinterpret_cast<uintptr_t>(s.base);
  if (address < base) {
    return "out of bounds access " + Bytes(base - address) +
           " before the start of shared memory (" + Bytes(s.bytes) + ")";
  }
  return "out of bounds access " + Bytes(address - base - s.bytes) +
         " past the end of shared memory (" + Bytes(s.bytes) + ")";
}

}  // namespace tally_sim::internal
