#ifndef TALLY_TESTS_CUDA_SIM_CUDA_BF16_H_
#define TALLY_TESTS_CUDA_SIM_CUDA_BF16_H_

// bf16 as a type of two bytes that converts to and from f32; it has no arithmetic of its own.

#include <cstdint>

#include "cuda_sim/narrow.h"
#include "cuda_sim/types.h"

struct __align__(2) __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits(tally_sim::internal::FloatToBfloat16(value)) {}
  operator float() const { return tally_sim::internal::Bfloat16ToFloat(bits); }
};
using nv_bfloat16 = __nv_bfloat16;

struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float value) { return value; }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 value;
  value.bits = bits;
  return value;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return make_float2(v.x, v.y); }

#endif  // TALLY_TESTS_CUDA_SIM_CUDA_BF16_H_
