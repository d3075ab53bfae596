// What CUDA leaves open, and a test can choose on the simulator but not on a GPU: the order in
// which threads and blocks run, drawn from a seed there, and whether lanes hold operands of f16 and
// bf16 alike.
#ifndef TALLY_TESTS_CUDA_ORDER_H_
#define TALLY_TESTS_CUDA_ORDER_H_

#include <cstdint>

#ifdef TALLY_ON_SIMULATOR
#include "cuda_sim.h"
#endif

namespace tally {

#ifdef TALLY_ON_SIMULATOR
inline void SetOrder(uint64_t seed) { tally_sim::SetSeed(seed); }
inline void SetF16Apart(bool apart) { tally_sim::SetF16Apart(apart); }
#else
inline void SetOrder(uint64_t) {}
inline void SetF16Apart(bool) {}
#endif

}  // namespace tally

#endif  // TALLY_TESTS_CUDA_ORDER_H_
