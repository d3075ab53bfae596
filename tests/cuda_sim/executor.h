#ifndef TALLY_TESTS_CUDA_SIM_EXECUTOR_H_
#define TALLY_TESTS_CUDA_SIM_EXECUTOR_H_

// Runs kernels: each block's threads as fibers of the calling host thread.
//
// A fiber takes a thread of the block that has not begun, runs it, and takes the next: a kernel
// without barriers needs one switch per block. When a thread waits, its fiber stays with it and
// another one goes on with the rest. Which thread runs next is drawn whenever there is a choice.
// A thread that fails never comes back: its fiber's stack is simply used again.

#include <csetjmp>
#include <string>

#include "cuda_sim/launch.h"
#include "state.h"

namespace tally_sim::internal {

struct Launch {
  KernelCall call;
  dim3 grid, block;
  size_t shared_bytes = 0;
};

// Memory that it opens stays open until CloseDevice and CloseShared.
Outcome RunKernel(const Launch& launch);

// For the signal handler. True while the calling host thread runs a kernel.
bool InKernel();
// Ends the kernel because of a fault at `address`; comes from the handler and does not return.
[[noreturn]] void LeaveKernel(uintptr_t address, bool write, bool known_write);

// Ends the kernel of the running thread with a report that names the thread.
[[noreturn]] void FailThread(cudaError_t error, const std::string& what);

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_EXECUTOR_H_
