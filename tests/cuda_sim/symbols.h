#ifndef TALLY_TESTS_CUDA_SIM_SYMBOLS_H_
#define TALLY_TESTS_CUDA_SIM_SYMBOLS_H_

#include <string>

namespace tally_sim::internal {

// The mangled name of the function at `address` from the symbol table of the ELF file `path`, which
// is mapped at `base`. Unlike dladdr it knows functions with internal linkage. Empty if not found.
std::string LocalSymbol(const char* path, const void* base, const void* address);

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_SYMBOLS_H_
