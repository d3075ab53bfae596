// The order of elements of a row by value, for kernels that look for the greatest.
#ifndef TALLY_OPS_ORDER_CUH_
#define TALLY_OPS_ORDER_CUH_

#include <cstdint>
#include <limits>

#include "tally/ops/rows.cuh"

namespace tally::gpu {

// An element and its position. The one that comes after all others to begin with.
template <typename C>
struct Ranked {
  C value = -std::numeric_limits<C>::infinity();
  int64_t index = std::numeric_limits<int64_t>::max();
};

// Greater ones come first, a NaN before all; of equals the one with the lower index.
template <typename C>
__device__ inline bool Before(const Ranked<C>& a, const Ranked<C>& b) {
  if (a.value > b.value) return true;
  if (a.value < b.value) return false;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  return a_nan != b_nan ? a_nan : a.index < b.index;
}
struct First {
  template <typename C>
  __device__ Ranked<C> operator()(const Ranked<C>& a, const Ranked<C>& b) const {
    return Before(b, a) ? b : a;
  }
};

template <typename C>
__device__ inline Ranked<C> ShuffleXor(const Ranked<C>& a, int step) {
  Ranked<C> other;
  other.value = __shfl_xor_sync(0xffffffffu, a.value, step);
  other.index = __shfl_xor_sync(0xffffffffu, a.index, step);
  return other;
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_ORDER_CUH_
