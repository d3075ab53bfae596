// GpuLane: one element in a thread, as the rows' texts see it. See lane_scalar.h.
#ifndef TALLY_OPS_LANE_GPU_CUH_
#define TALLY_OPS_LANE_GPU_CUH_

#include <cmath>
#include <type_traits>

#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

// The device's functions by type.
#define TALLY_GPU_FUNCTION(Name, f32, f64)                 \
  __device__ inline float Name(float x) { return f32(x); } \
  __device__ inline double Name(double x) { return f64(x); }
TALLY_GPU_FUNCTION(AbsOf, fabsf, fabs)
TALLY_GPU_FUNCTION(ExpOf, expf, exp)
TALLY_GPU_FUNCTION(LogOf, logf, log)
TALLY_GPU_FUNCTION(SqrtOf, sqrtf, sqrt)
TALLY_GPU_FUNCTION(SinOf, sinf, sin)
TALLY_GPU_FUNCTION(CosOf, cosf, cos)
TALLY_GPU_FUNCTION(TanhOf, tanhf, tanh)
TALLY_GPU_FUNCTION(ErfOf, erff, erf)
#undef TALLY_GPU_FUNCTION
__device__ inline float PowOf(float a, float b) { return powf(a, b); }
__device__ inline double PowOf(double a, double b) { return pow(a, b); }

template <typename T>
struct GpuLane {
  using Element = T;
  using Mask = bool;
  T v;

  GpuLane() = default;
  __device__ GpuLane(double c) : v(static_cast<T>(c)) {}  // implicit: constants in a text
  __device__ static GpuLane Of(T value) {
    GpuLane lane;
    lane.v = value;
    return lane;
  }

  // Integers wrap.
  using Wrap = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                           std::type_identity<T>>::type;
  __device__ friend GpuLane operator+(GpuLane a, GpuLane b) {
    return Of(static_cast<T>(static_cast<Wrap>(a.v) + static_cast<Wrap>(b.v)));
  }
  __device__ friend GpuLane operator-(GpuLane a, GpuLane b) {
    return Of(static_cast<T>(static_cast<Wrap>(a.v) - static_cast<Wrap>(b.v)));
  }
  __device__ friend GpuLane operator*(GpuLane a, GpuLane b) {
    return Of(static_cast<T>(static_cast<Wrap>(a.v) * static_cast<Wrap>(b.v)));
  }
  __device__ friend GpuLane operator/(GpuLane a, GpuLane b) { return Of(a.v / b.v); }
  __device__ friend GpuLane operator-(GpuLane a) { return Of(-a.v); }

  __device__ friend bool operator==(GpuLane a, GpuLane b) { return a.v == b.v; }
  __device__ friend bool operator!=(GpuLane a, GpuLane b) { return a.v != b.v; }
  __device__ friend bool operator<(GpuLane a, GpuLane b) { return a.v < b.v; }
  __device__ friend bool operator<=(GpuLane a, GpuLane b) { return a.v <= b.v; }
  __device__ friend bool operator>(GpuLane a, GpuLane b) { return a.v > b.v; }
  __device__ friend bool operator>=(GpuLane a, GpuLane b) { return a.v >= b.v; }

  __device__ friend GpuLane Select(bool mask, GpuLane yes, GpuLane no) { return mask ? yes : no; }
  // A NaN on either side is the result.
  __device__ friend GpuLane Max(GpuLane a, GpuLane b) { return a.v > b.v || a.v != a.v ? a : b; }
  __device__ friend GpuLane Min(GpuLane a, GpuLane b) { return a.v < b.v || a.v != a.v ? a : b; }

  __device__ friend GpuLane Abs(GpuLane a) { return Of(AbsOf(a.v)); }
  __device__ friend GpuLane Exp(GpuLane a) { return Of(ExpOf(a.v)); }
  __device__ friend GpuLane Log(GpuLane a) { return Of(LogOf(a.v)); }
  __device__ friend GpuLane Sqrt(GpuLane a) { return Of(SqrtOf(a.v)); }
  __device__ friend GpuLane Rsqrt(GpuLane a) { return Of(T{1} / SqrtOf(a.v)); }
  __device__ friend GpuLane Sin(GpuLane a) { return Of(SinOf(a.v)); }
  __device__ friend GpuLane Cos(GpuLane a) { return Of(CosOf(a.v)); }
  __device__ friend GpuLane Tanh(GpuLane a) { return Of(TanhOf(a.v)); }
  __device__ friend GpuLane Erf(GpuLane a) { return Of(ErfOf(a.v)); }
  __device__ friend GpuLane Pow(GpuLane a, GpuLane b) { return Of(PowOf(a.v, b.v)); }
};

}  // namespace tally::gpu

#endif  // TALLY_OPS_LANE_GPU_CUH_
