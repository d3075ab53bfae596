// The order in which a device runs threads and blocks: the simulator's is drawn from a seed, a GPU's
// is not ours to choose.
#ifndef TALLY_TESTS_CUDA_ORDER_H_
#define TALLY_TESTS_CUDA_ORDER_H_

#include <cstdint>

#ifdef TALLY_ON_SIMULATOR
#include "cuda_sim.h"
#endif

namespace tally {

#ifdef TALLY_ON_SIMULATOR
inline void SetOrder(uint64_t seed) { tally_sim::SetSeed(seed); }
#else
inline void SetOrder(uint64_t) {}
#endif

}  // namespace tally

#endif  // TALLY_TESTS_CUDA_ORDER_H_
