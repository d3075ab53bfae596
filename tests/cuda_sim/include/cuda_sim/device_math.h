#ifndef TALLY_TESTS_CUDA_SIM_DEVICE_MATH_H_
#define TALLY_TESTS_CUDA_SIM_DEVICE_MATH_H_

// Arithmetic that kernels call by CUDA's names. What <math.h> has (expf, fmaf, erff, ...) comes
// from there. The fast functions (__expf, ...) are here as exact as the others.

#include <math.h>

#include <bit>
#include <cstdint>

#include "cuda_sim/types.h"

inline float rsqrtf(float x) { return static_cast<float>(1 / sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * x)); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * x)); }
inline double sinpi(double x) { return sin(M_PI * x); }
inline double cospi(double x) { return cos(M_PI * x); }
inline float normcdff(float x) { return static_cast<float>(0.5 * erfc(-M_SQRT1_2 * x)); }
inline double normcdf(double x) { return 0.5 * erfc(-M_SQRT1_2 * x); }

// <math.h> of glibc declares names with two underscores beside its own: these give them a body.
extern "C" {
inline float __expf(float x) noexcept { return expf(x); }
inline float __exp10f(float x) noexcept { return static_cast<float>(pow(10.0, x)); }
inline float __logf(float x) noexcept { return logf(x); }
inline float __log2f(float x) noexcept { return log2f(x); }
inline float __log10f(float x) noexcept { return log10f(x); }
inline float __sinf(float x) noexcept { return sinf(x); }
inline float __cosf(float x) noexcept { return cosf(x); }
inline float __tanf(float x) noexcept { return tanf(x); }
inline float __powf(float x, float y) noexcept { return powf(x, y); }
}
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }  // NaN: 0

// Rounded once, never contracted.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1 / a; }
inline float __frsqrt_rn(float a) { return rsqrtf(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __dsqrt_rn(double a) { return sqrt(a); }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// From a float to an integer the device saturates and takes NaN for 0; C++ leaves it undefined.
inline int __float2int_rz(float x) {
  if (!(x == x)) return 0;
  if (x >= 2147483648.0f) return 2147483647;
  return x <= -2147483648.0f ? -2147483647 - 1 : static_cast<int>(x);
}
inline int __float2int_rn(float x) { return __float2int_rz(nearbyintf(x)); }
inline int __float2int_rd(float x) { return __float2int_rz(floorf(x)); }
inline int __float2int_ru(float x) { return __float2int_rz(ceilf(x)); }
inline unsigned __float2uint_rz(float x) {
  if (!(x > 0)) return 0;
  return x >= 4294967296.0f ? 4294967295u : static_cast<unsigned>(x);
}
inline unsigned __float2uint_rn(float x) { return __float2uint_rz(nearbyintf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline int __ffsll(long long x) {
  return x ? std::countr_zero(static_cast<unsigned long long>(x)) + 1 : 0;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned s = shift & 31;
  return s ? high << s | low >> (32 - s) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned s = shift & 31;
  return s ? low >> s | high << (32 - s) : low;
}

// A NaN beside a number gives the number, as fminf and fmaxf do.
#define TALLY_SIM_MIN_MAX(type)                             \
  inline type min(type a, type b) { return b < a ? b : a; } \
  inline type max(type a, type b) { return a < b ? b : a; }
TALLY_SIM_MIN_MAX(int)
TALLY_SIM_MIN_MAX(unsigned)
TALLY_SIM_MIN_MAX(long)
TALLY_SIM_MIN_MAX(unsigned long)
TALLY_SIM_MIN_MAX(long long)
TALLY_SIM_MIN_MAX(unsigned long long)
#undef TALLY_SIM_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

#endif  // TALLY_TESTS_CUDA_SIM_DEVICE_MATH_H_
