#ifndef TALLY_TESTS_CUDA_SIM_FAULT_H_
#define TALLY_TESTS_CUDA_SIM_FAULT_H_

#include <cstdint>
#include <string>

namespace tally_sim::internal {

// Installs the handler of SIGSEGV and SIGBUS, and gives the calling thread a stack for it.
void PrepareFaults();

// What was accessed at `address`.
std::string DescribeAddress(uintptr_t address, bool write, bool known_write, bool in_kernel);

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_FAULT_H_
