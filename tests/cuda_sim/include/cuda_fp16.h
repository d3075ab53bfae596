#ifndef TALLY_TESTS_CUDA_SIM_CUDA_FP16_H_
#define TALLY_TESTS_CUDA_SIM_CUDA_FP16_H_

// f16 as a type of two bytes that converts to and from f32; it has no arithmetic of its own.

#include <cstdint>

#include "cuda_sim/narrow.h"
#include "cuda_sim/types.h"

struct __align__(2) __half {
  uint16_t bits;
  __half() = default;
  __half(float value) : bits(tally_sim::internal::FloatToHalf(value)) {}
  operator float() const { return tally_sim::internal::HalfToFloat(bits); }
};
using half = __half;

struct __align__(4) __half2 {
  __half x, y;
};
using half2 = __half2;

inline __half __float2half(float value) { return value; }
inline __half __float2half_rn(float value) { return value; }
inline float __half2float(__half value) { return value; }
inline __half __ushort_as_half(unsigned short bits) {
  __half value;
  value.bits = bits;
  return value;
}
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline float2 __half22float2(__half2 v) { return make_float2(v.x, v.y); }

#endif  // TALLY_TESTS_CUDA_SIM_CUDA_FP16_H_
