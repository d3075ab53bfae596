// Device code over a GpuPair.
#ifndef TALLY_OPS_COPY_CUH_
#define TALLY_OPS_COPY_CUH_

#include "tally/ops/copy_gpu.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

using internal::GpuPair;

// Where an element lies in the target and in the source.
struct Places {
  int64_t to, from;
};

template <typename Index>
__device__ inline Places UnravelPair(const GpuPair& p, Index i) {
  Places at{0, 0};
  for (int d = p.rank - 1; d > 0; --d) {
    const auto dim = static_cast<Index>(p.dims[d]);
    const Index index = i % dim;
    i /= dim;
    at.to += static_cast<int64_t>(index) * p.to[d];
    at.from += static_cast<int64_t>(index) * p.from[d];
  }
  at.to += static_cast<int64_t>(i) * p.to[0];
  at.from += static_cast<int64_t>(i) * p.from[0];
  return at;
}
// Of element `i` in row-major order. Divisions of 32 bits where they do.
__device__ inline Places PlacesOf(const GpuPair& p, int64_t i) {
  return p.numel <= INT32_MAX ? UnravelPair(p, static_cast<uint32_t>(i)) : UnravelPair(p, i);
}

// What 16 bytes are moved as.
using Unit16 = Vector<uint64_t, 2>;

// VisitSize with units of 16 bytes too.
template <typename Fn>
GpuError VisitUnit(int64_t item, const Fn& fn) {
  return item == 16 ? fn(Unit16{}) : VisitSize(item, fn);
}

// Whether everything that moves can do so in units twice as large.
inline bool IsEven(int64_t item, const void* p) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(2 * item) == 0;
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_COPY_CUH_
