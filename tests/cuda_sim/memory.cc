#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

namespace tally_sim::internal {
namespace {

// Addresses, not memory: enough for years of tests, since none is used twice.
constexpr size_t kArena = size_t{8} << 40;
constexpr size_t kGranule = 256;  // alignment of an allocation, and what its memory is counted in

// Bytes that no kernel writes by accident, NaN as f32 and bf16.
constexpr uint32_t kCanary = 0xffa5ffa5u;
unsigned char CanaryByte(uintptr_t address) {
  return static_cast<unsigned char>(kCanary >> (8 * (address & 3)));
}

[[noreturn]] void Fatal(const char* what) {
  std::fprintf(stderr, "cuda_sim: %s: ", what);
  std::perror(nullptr);
  std::exit(5);
}

struct Arena {
  int file = -1;
  uintptr_t base = 0;                  // of the addresses that programs see
  uintptr_t alias = 0;                 // of the view that is always open
  uintptr_t next = 0;                  // first address never given out
  size_t used = 0;                     // bytes counted against the device's memory
  std::deque<Allocation> allocations;  // by address; a deque keeps pointers valid
  std::vector<Allocation*> open;
  bool contains(uintptr_t address) const { return address - base < kArena; }
};

void Map(uintptr_t address, size_t bytes, int protection, int file, size_t offset) {
  if (mmap(reinterpret_cast<void*>(address), bytes, protection,
           MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    Fatal("cannot map device memory");
  }
}

Arena& TheArena() {
  static Arena& arena = *[] {
    auto* a = new Arena;
    a->file = memfd_create("cuda_sim", MFD_CLOEXEC);
    if (a->file < 0 || ftruncate(a->file, kArena) != 0) Fatal("cannot make device memory");
    void* range =
        mmap(nullptr, 2 * kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) Fatal("cannot reserve addresses for device memory");
    a->base = reinterpret_cast<uintptr_t>(range);
    a->alias = a->base + kArena;
    Map(a->base, kArena, PROT_NONE, a->file, 0);
    Map(a->alias, kArena, PROT_READ | PROT_WRITE, a->file, 0);
    // A core file has no use for a sparse range of terabytes.
    madvise(range, 2 * kArena, MADV_DONTDUMP);
    a->next = a->base + kPage;  // a guard page before the first allocation
    return a;
  }();
  return arena;
}

unsigned char* AliasOf(uintptr_t address) {
  const Arena& arena = TheArena();
  return reinterpret_cast<unsigned char*>(address - arena.base + arena.alias);
}

void FillCanary(uintptr_t from, uintptr_t to) {
  for (unsigned char* p = AliasOf(from); from != to; ++from) *p++ = CanaryByte(from);
}

// The first damaged byte of [from, to), or `to`.
uintptr_t DamagedAt(uintptr_t from, uintptr_t to) {
  const unsigned char* p = AliasOf(from);
  while (from != to && from % 8 != 0 && *p == CanaryByte(from)) ++from, ++p;
  constexpr uint64_t kEight = uint64_t{kCanary} << 32 | kCanary;
  for (; to - from >= 8 && from % 8 == 0; from += 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    if (word != kEight) break;
  }
  while (from != to && *p == CanaryByte(from)) ++from, ++p;
  return from;
}

// Looks at all that follows the bytes, and at what precedes them beginning at `from`.
std::string CheckCanary(const Allocation& a, uintptr_t from) {
  const uintptr_t after = DamagedAt(a.end(), a.region_end);
  if (after != a.region_end) {
    return "out of bounds: something wrote " +
           (after == a.end() ? "right after the end" : Bytes(after - a.end()) + " past the end") +
           " of " + Describe(a);
  }
  uintptr_t before = DamagedAt(from, a.begin);
  if (before == a.begin) return "";
  // The run of damaged bytes nearest to the start tells most.
  uintptr_t last = before;
  for (uintptr_t next = DamagedAt(last + 1, a.begin); next != a.begin;
       next = DamagedAt(next + 1, a.begin)) {
    if (next != last + 1) before = next;
    last = next;
  }
  return "out of bounds: something wrote " + Bytes(a.begin - before) + " before the start of " +
         Describe(a);
}

void Poison(const Allocation& a) {
  if (a.bytes <= 4 * kPage) {
    std::memset(AliasOf(a.begin), 0xff, a.bytes);
    return;
  }
  // Writing to the file makes fresh pages at half the cost of faulting them in one by one.
  static const std::string& poison = *new std::string(size_t{1} << 20, '\xff');
  for (size_t done = 0; done < a.bytes;) {
    const ssize_t n =
        pwrite(TheArena().file, poison.data(), std::min(poison.size(), a.bytes - done),
               static_cast<off_t>(a.begin - TheArena().base + done));
    if (n <= 0) Fatal("cannot fill device memory");
    done += static_cast<size_t>(n);
  }
}

size_t Counted(const Allocation& a) { return RoundUp(a.bytes, kGranule); }

void CountFree(const Allocation& a) {
  Counters& counters = GetState().counters;
  --counters.allocations;
  counters.bytes -= a.bytes;
  TheArena().used -= Counted(a);
}

void GiveBack(const Allocation& a) {
  Arena& arena = TheArena();
  const size_t bytes = a.region_end - a.region, offset = a.region - arena.base;
  if (fallocate(arena.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes)) != 0) {
    Fatal("cannot give device memory back");
  }
  if (bytes >= (size_t{4} << 20)) {  // so much is mapped anew, which frees its page tables
    Map(a.region, bytes, PROT_NONE, arena.file, offset);
    Map(a.region - arena.base + arena.alias, bytes, PROT_READ | PROT_WRITE, arena.file, offset);
  }
}

}  // namespace

std::string Describe(const Allocation& allocation) {
  const auto& all = TheArena().allocations;
  const auto it =
      std::lower_bound(all.begin(), all.end(), allocation.begin,
                       [](const Allocation& a, uintptr_t address) { return a.begin < address; });
  return "allocation " + std::to_string(it - all.begin() + 1) + " (" + Bytes(allocation.bytes) +
         ")";
}

Allocation* AllocateDevice(size_t bytes, bool pending) {
  Arena& arena = TheArena();
  const size_t limit = GetState().device.memory;
  if (bytes > limit || arena.used + RoundUp(bytes, kGranule) > limit) return nullptr;
  const size_t counted = RoundUp(bytes, kGranule), pages = RoundUp(counted, kPage);
  if (arena.next + pages + kPage > arena.base + kArena) return nullptr;
  Allocation a;
  a.region = arena.next;
  a.region_end = a.region + pages;
  a.begin = a.region_end - counted;
  a.bytes = bytes;
  a.state = pending ? Allocation::State::kPending : Allocation::State::kLive;
  arena.next = a.region_end + kPage;
  arena.used += counted;
  Poison(a);
  FillCanary(a.region, a.begin);
  FillCanary(a.end(), a.region_end);
  Counters& counters = GetState().counters;
  ++counters.allocations;
  counters.bytes += bytes;
  counters.peak_bytes = std::max(counters.peak_bytes, counters.bytes);
  arena.allocations.push_back(a);
  return &arena.allocations.back();
}

void Activate(Allocation* allocation) { allocation->state = Allocation::State::kLive; }

size_t DeviceBytesUsed() { return TheArena().used; }

Allocation* FindAround(uintptr_t address) {
  Arena& arena = TheArena();
  if (!arena.contains(address)) return nullptr;
  auto it = std::upper_bound(arena.allocations.begin(), arena.allocations.end(), address,
                             [](uintptr_t x, const Allocation& a) { return x < a.region; });
  if (it == arena.allocations.begin()) return nullptr;
  --it;
  return address < it->region_end + kPage ? &*it : nullptr;
}

Allocation* FindBegin(const void* pointer) {
  Allocation* a = FindAround(reinterpret_cast<uintptr_t>(pointer));
  return a != nullptr && a->begin == reinterpret_cast<uintptr_t>(pointer) ? a : nullptr;
}

std::string FreeDevice(Allocation* allocation) {
  Arena& arena = TheArena();
  if (allocation->open) {
    mprotect(reinterpret_cast<void*>(allocation->region),
             allocation->region_end - allocation->region, PROT_NONE);
    allocation->open = false;
    arena.open.erase(std::find(arena.open.begin(), arena.open.end(), allocation));
  }
  std::string report = CheckCanary(*allocation, allocation->region);
  allocation->state = Allocation::State::kFreed;
  CountFree(*allocation);
  GiveBack(*allocation);
  return report;
}

void FreeAllDevice() {
  CloseDevice();
  for (Allocation& a : TheArena().allocations) {
    if (a.state == Allocation::State::kFreed) continue;
    a.state = Allocation::State::kFreed;
    CountFree(a);
    GiveBack(a);
  }
}

bool IsDevice(const void* pointer) {
  return TheArena().contains(reinterpret_cast<uintptr_t>(pointer));
}

unsigned char* Alias(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return TheArena().contains(address) ? AliasOf(address)
                                      : static_cast<unsigned char*>(const_cast<void*>(pointer));
}

std::string CheckRange(const void* pointer, size_t bytes) {
  if (!IsDevice(pointer)) return "";
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const Allocation* a = FindAround(address);
  if (a == nullptr) return "device memory that was never allocated";
  if (a->state == Allocation::State::kFreed) return "use of freed " + Describe(*a);
  if (a->state == Allocation::State::kPending)
    return "use before cudaMallocAsync of " + Describe(*a);
  if (address < a->begin) return Bytes(a->begin - address) + " before the start of " + Describe(*a);
  if (address - a->begin > a->bytes || bytes > a->bytes - (address - a->begin)) {
    return Bytes(address + bytes - a->end()) + " past the end of " + Describe(*a);
  }
  return "";
}

void OpenDevice(Allocation* allocation) {
  if (allocation->open || allocation->state != Allocation::State::kLive) return;
  if (mprotect(reinterpret_cast<void*>(allocation->region),
               allocation->region_end - allocation->region, PROT_READ | PROT_WRITE) != 0) {
    Fatal("cannot open device memory");
  }
  allocation->open = true;
  TheArena().open.push_back(allocation);
}

void OpenArguments(const void* arguments, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(arguments);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, p + i, 8);
    if (!TheArena().contains(word)) continue;
    if (Allocation* a = FindAround(word)) OpenDevice(a);
  }
}

void CloseDevice() {
  Arena& arena = TheArena();
  if (arena.open.empty()) return;
  uintptr_t from = UINTPTR_MAX, to = 0;
  for (Allocation* a : arena.open) {
    from = std::min(from, a->region);
    to = std::max(to, a->region_end);
    a->open = false;
  }
  arena.open.clear();
  // What lies between is closed already and costs next to nothing.
  mprotect(reinterpret_cast<void*>(from), to - from, PROT_NONE);
}

std::string CheckCanaries() {
  for (const Allocation* a : TheArena().open) {
    // Near the start only, as this runs after every kernel; the rest is looked at when it is freed.
    const uintptr_t near = std::max(a->region, a->begin - kGranule);
    if (std::string report = CheckCanary(*a, near); !report.empty()) {
      // Repaired, so that it is told once.
      FillCanary(a->region, a->begin);
      FillCanary(a->end(), a->region_end);
      return report;
    }
  }
  return "";
}

std::string DescribeFault(uintptr_t address, bool write, bool known_write) {
  Arena& arena = TheArena();
  if (!arena.contains(address)) return "";
  const std::string access = !known_write ? "access" : write ? "write" : "read";
  Allocation* a = FindAround(address);
  if (a != nullptr && address < a->region_end) {
    if (a->state == Allocation::State::kFreed) return access + " of freed " + Describe(*a);
    if (a->state == Allocation::State::kPending) {
      return access + " before cudaMallocAsync of " + Describe(*a);
    }
    return access + " of " + Describe(*a);
  }
  // Between two allocations: the nearer one was meant.
  auto next = std::upper_bound(arena.allocations.begin(), arena.allocations.end(), address,
                               [](uintptr_t x, const Allocation& b) { return x < b.region; });
  if (next != arena.allocations.end() &&
      (a == nullptr || next->begin - address <= address - a->end())) {
    a = &*next;
  } else if (a == nullptr && next != arena.allocations.begin()) {
    a = &*--next;
  }
  if (a == nullptr) return access + " of device memory that was never allocated";
  const std::string state = a->state == Allocation::State::kFreed ? "freed " : "";
  if (address < a->begin) {
    return "out of bounds " + access + " " + Bytes(a->begin - address) + " before the start of " +
           state + Describe(*a);
  }
  return "out of bounds " + access + " " + Bytes(address - a->end()) + " past the end of " + state +
         Describe(*a);
}

bool OpenOnFault(uintptr_t address) {
  Allocation* a = FindAround(address);
  if (a == nullptr || address >= a->region_end || a->state != Allocation::State::kLive || a->open) {
    return false;
  }
  OpenDevice(a);
  return true;
}

}  // namespace tally_sim::internal
