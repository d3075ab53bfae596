#ifndef TALLY_TESTS_CUDA_SIM_TYPES_H_
#define TALLY_TESTS_CUDA_SIM_TYPES_H_

// Qualifiers and vector types of CUDA C++. `__shared__` is left out: Tally's kernels take dynamic
// shared memory through one accessor, and a static array would be shared by nobody here.

#include <cstddef>
#include <cstdint>

#define TALLY_CUDA_SIM 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define CUDART_CB

// Kernels read arrays of floats as vectors: the types may alias.
#define TALLY_SIM_VECTOR2(type, name, alignment)               \
  struct __attribute__((aligned(alignment), may_alias)) name { \
    type x, y;                                                 \
  };                                                           \
  inline name make_##name(type x, type y) { return {x, y}; }
#define TALLY_SIM_VECTOR3(type, name)      \
  struct __attribute__((may_alias)) name { \
    type x, y, z;                          \
  };                                       \
  inline name make_##name(type x, type y, type z) { return {x, y, z}; }
#define TALLY_SIM_VECTOR4(type, name, alignment)               \
  struct __attribute__((aligned(alignment), may_alias)) name { \
    type x, y, z, w;                                           \
  };                                                           \
  inline name make_##name(type x, type y, type z, type w) { return {x, y, z, w}; }

TALLY_SIM_VECTOR2(signed char, char2, 2)
TALLY_SIM_VECTOR2(unsigned char, uchar2, 2)
TALLY_SIM_VECTOR2(short, short2, 4)
TALLY_SIM_VECTOR2(unsigned short, ushort2, 4)
TALLY_SIM_VECTOR2(int, int2, 8)
TALLY_SIM_VECTOR2(unsigned, uint2, 8)
TALLY_SIM_VECTOR2(long long, longlong2, 16)
TALLY_SIM_VECTOR2(unsigned long long, ulonglong2, 16)
TALLY_SIM_VECTOR2(float, float2, 8)
TALLY_SIM_VECTOR2(double, double2, 16)
TALLY_SIM_VECTOR3(int, int3)
TALLY_SIM_VECTOR3(unsigned, uint3)
TALLY_SIM_VECTOR3(float, float3)
TALLY_SIM_VECTOR4(signed char, char4, 4)
TALLY_SIM_VECTOR4(unsigned char, uchar4, 4)
TALLY_SIM_VECTOR4(short, short4, 8)
TALLY_SIM_VECTOR4(unsigned short, ushort4, 8)
TALLY_SIM_VECTOR4(int, int4, 16)
TALLY_SIM_VECTOR4(unsigned, uint4, 16)
TALLY_SIM_VECTOR4(float, float4, 16)

#undef TALLY_SIM_VECTOR2
#undef TALLY_SIM_VECTOR3
#undef TALLY_SIM_VECTOR4

struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  unsigned x, y, z;
};

#endif  // TALLY_TESTS_CUDA_SIM_TYPES_H_
