#include "fibers.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

namespace tally_sim::internal {
namespace {

constexpr size_t kStack = size_t{64} << 10;
// As large, so that no frame of a reasonable function steps over it.
constexpr size_t kGuard = size_t{64} << 10;

}  // namespace

void Fibers::Enter(boost::context::detail::transfer_t from) {
  auto* fibers = static_cast<Fibers*>(from.data);
  fibers->scheduler_ = from.fctx;
  fibers->entry_();
}

void Fibers::Prepare(int fiber) {
  // Stacks that begin at the same place of their pages would share few lines of the cache.
  const size_t shift = static_cast<size_t>(fiber % 16) * 256;
  fibers_[fiber].context = boost::context::detail::make_fcontext(
      fibers_[fiber].stack + kStack - shift, kStack - shift, &Fibers::Enter);
}

int Fibers::Take() {
  if (idle_.empty()) {
    void* memory =
        mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) {
      std::perror("cuda_sim: cannot make a stack");
      std::exit(5);
    }
    fibers_.push_back({static_cast<unsigned char*>(memory) + kGuard});
    idle_.push_back(count() - 1);
    Prepare(count() - 1);
  }
  const int fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

void Fibers::AbandonAll() {
  idle_.clear();
  for (int fiber = count(); fiber-- > 0;) {
    Prepare(fiber);
    idle_.push_back(fiber);
  }
}

bool Fibers::IsGuard(uintptr_t address) const {
  for (const Fiber& fiber : fibers_) {
    const auto end = reinterpret_cast<uintptr_t>(fiber.stack);
    if (address >= end - kGuard && address < end) return true;
  }
  return false;
}

}  // namespace tally_sim::internal
