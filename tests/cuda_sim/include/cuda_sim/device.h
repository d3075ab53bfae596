#ifndef TALLY_TESTS_CUDA_SIM_DEVICE_H_
#define TALLY_TESTS_CUDA_SIM_DEVICE_H_

// What a kernel finds besides arithmetic: its indices, barriers, warp functions, atomics. Threads
// of a block are fibers of one host thread and give way only in barriers and warp functions, so
// that an atomic is a plain read and write.

#include <cstring>
#include <type_traits>

#include "cuda_sim/types.h"

// Of the thread that runs now.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace tally_sim::internal {

// The place of a call in the kernel's source.
struct Site {
  const char* file = nullptr;
  int line = 0;
};

// Waits for all threads of the block.
void Barrier(Site site);

// Waits for all lanes in `mask`, which must all call with this `name`, `mask` and site; then
// complete(payloads, lanes) runs once, `lanes` being those that take part and payloads[lane] what
// that lane brought.
using Complete = void (*)(void* const* payloads, unsigned lanes);
void WarpCall(const char* name, unsigned mask, Site site, void* payload, Complete complete);

// Lane of the running thread in its warp.
int Lane();

// Ends the kernel: a shuffle read a lane that takes no part.
[[noreturn]] void FailShuffle(int lane, int source);

template <typename T>
struct ShufflePayload {
  T value;
  int source;
  T result;
};

template <typename T>
T Shuffle(const char* name, unsigned mask, T value, int source, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  ShufflePayload<T> payload{value, source, value};
  WarpCall(name, mask, site, &payload, [](void* const* payloads, unsigned lanes) {
    for (int lane = 0; lane < 32; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      auto* mine = static_cast<ShufflePayload<T>*>(payloads[lane]);
      if (!(lanes >> mine->source & 1)) FailShuffle(lane, mine->source);
      mine->result = static_cast<ShufflePayload<T>*>(payloads[mine->source])->value;
    }
  });
  return payload.result;
}

// The votes of all lanes, as a mask.
unsigned Vote(const char* name, unsigned mask, bool vote, Site site);

}  // namespace tally_sim::internal

#define TALLY_SIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(TALLY_SIM_SITE) { tally_sim::internal::Barrier({file, line}); }

inline void __syncwarp(unsigned mask = 0xffffffffu, TALLY_SIM_SITE) {
  tally_sim::internal::WarpCall("__syncwarp", mask, {file, line}, nullptr, nullptr);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, TALLY_SIM_SITE) {
  const int lane = tally_sim::internal::Lane();
  const int from = (lane & ~(width - 1)) | (source & (width - 1));
  return tally_sim::internal::Shuffle("__shfl_sync", mask, value, from, {file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, TALLY_SIM_SITE) {
  const int lane = tally_sim::internal::Lane(), end = (lane & ~(width - 1)) + width;
  const int from = lane ^ lane_mask;
  return tally_sim::internal::Shuffle("__shfl_xor_sync", mask, value, from < end ? from : lane,
                                      {file, line});
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, TALLY_SIM_SITE) {
  const int lane = tally_sim::internal::Lane(), end = (lane & ~(width - 1)) + width;
  const int from = lane + static_cast<int>(delta);
  return tally_sim::internal::Shuffle("__shfl_down_sync", mask, value, from < end ? from : lane,
                                      {file, line});
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, TALLY_SIM_SITE) {
  const int lane = tally_sim::internal::Lane(), begin = lane & ~(width - 1);
  const int from = lane - static_cast<int>(delta);
  return tally_sim::internal::Shuffle("__shfl_up_sync", mask, value, from >= begin ? from : lane,
                                      {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate, TALLY_SIM_SITE) {
  return tally_sim::internal::Vote("__ballot_sync", mask, predicate != 0, {file, line});
}
inline int __any_sync(unsigned mask, int predicate, TALLY_SIM_SITE) {
  return tally_sim::internal::Vote("__any_sync", mask, predicate != 0, {file, line}) != 0;
}
inline int __all_sync(unsigned mask, int predicate, TALLY_SIM_SITE) {
  return tally_sim::internal::Vote("__all_sync", mask, predicate == 0, {file, line}) == 0;
}

#undef TALLY_SIM_SITE

// The types that the device has an instruction for.
#define TALLY_SIM_ATOMIC(name, type, expression) \
  inline type name(type* address, type value) {  \
    const type old = *address;                   \
    *address = (expression);                     \
    return old;                                  \
  }
#define TALLY_SIM_ATOMIC_INTEGERS(name, expression) \
  TALLY_SIM_ATOMIC(name, int, expression)           \
  TALLY_SIM_ATOMIC(name, unsigned, expression)      \
  TALLY_SIM_ATOMIC(name, unsigned long long, expression)
TALLY_SIM_ATOMIC(atomicAdd, float, old + value)
TALLY_SIM_ATOMIC(atomicAdd, double, old + value)
TALLY_SIM_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + value))
TALLY_SIM_ATOMIC(atomicAdd, unsigned, old + value)
TALLY_SIM_ATOMIC(atomicAdd, unsigned long long, old + value)
TALLY_SIM_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - value))
TALLY_SIM_ATOMIC(atomicSub, unsigned, old - value)
TALLY_SIM_ATOMIC_INTEGERS(atomicMax, value > old ? value : old)
TALLY_SIM_ATOMIC(atomicMax, long long, value > old ? value : old)
TALLY_SIM_ATOMIC_INTEGERS(atomicMin, value < old ? value : old)
TALLY_SIM_ATOMIC(atomicMin, long long, value < old ? value : old)
TALLY_SIM_ATOMIC_INTEGERS(atomicAnd, old& value)
TALLY_SIM_ATOMIC_INTEGERS(atomicOr, old | value)
TALLY_SIM_ATOMIC_INTEGERS(atomicXor, old ^ value)
TALLY_SIM_ATOMIC_INTEGERS(atomicExch, value)
TALLY_SIM_ATOMIC(atomicExch, float, value)
#undef TALLY_SIM_ATOMIC
#undef TALLY_SIM_ATOMIC_INTEGERS

#define TALLY_SIM_COMPARE_AND_SWAP(type)                           \
  inline type atomicCAS(type* address, type compare, type value) { \
    const type old = *address;                                     \
    if (old == compare) *address = value;                          \
    return old;                                                    \
  }
TALLY_SIM_COMPARE_AND_SWAP(int)
TALLY_SIM_COMPARE_AND_SWAP(unsigned)
TALLY_SIM_COMPARE_AND_SWAP(unsigned long long)
TALLY_SIM_COMPARE_AND_SWAP(unsigned short)
#undef TALLY_SIM_COMPARE_AND_SWAP

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// Loads and stores with a hint for the caches.
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, T value) {
  *address = value;
}

#endif  // TALLY_TESTS_CUDA_SIM_DEVICE_H_
