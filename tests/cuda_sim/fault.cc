#include "fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "executor.h"
#include "host_memory.h"
#include "memory.h"

namespace tally_sim::internal {
namespace {

struct sigaction previous_segv, previous_bus;

void Handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  bool write = false, known_write = false;
#if defined(__x86_64__)
  // Bit 1 of the page fault's error code. Other faults carry no address.
  write = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
  known_write = true;
#else
  (void)context;
#endif
  if (InKernel()) {
    if (OpenOnFault(address)) return;  // and the access is made again
    LeaveKernel(address, write, known_write);
  }
  std::string what = DescribeFault(address, write, known_write);
  if (!what.empty()) ReportAndEnd("host access to device memory: " + what);
  what = DescribeSharedFault(address, false);
  if (what.empty()) what = DescribePinnedFault(address);
  if (!what.empty()) ReportAndEnd(what);
  // None of ours: as if this handler were not there.
  sigaction(signal, signal == SIGBUS ? &previous_bus : &previous_segv, nullptr);
}

}  // namespace

void PrepareFaults() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = &Handle;
    // Faults of a kernel are met by leaving the handler sideways; SA_NODEFER lets the next one
    // come.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGSEGV, &action, &previous_segv) == 0 &&
           sigaction(SIGBUS, &action, &previous_bus) == 0;
  }();
  if (!installed) {
    std::perror("cuda_sim: cannot handle faults");
    std::exit(5);
  }
  // Fibers have small stacks, and one that is full has none left for a handler.
  thread_local const bool has_stack = [] {
    constexpr size_t kBytes = size_t{128} << 10;
    stack_t stack = {};
    stack.ss_sp = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = kBytes;
    return stack.ss_sp != MAP_FAILED && sigaltstack(&stack, nullptr) == 0;
  }();
  (void)has_stack;
}

std::string DescribeAddress(uintptr_t address, bool write, bool known_write, bool in_kernel) {
  std::string what = DescribeFault(address, write, known_write);
  if (what.empty()) what = DescribeSharedFault(address, in_kernel);
  if (what.empty()) what = DescribePinnedFault(address);
  if (!what.empty()) return what;
  if (address == 0) return "access of a null pointer, or misaligned, or of no valid address";
  char text[80];
  std::snprintf(text, sizeof text, "%s at 0x%" PRIxPTR ", which is no device memory",
                !known_write ? "access"
                : write      ? "write"
                             : "read",
                address);
  return text;
}

}  // namespace tally_sim::internal
