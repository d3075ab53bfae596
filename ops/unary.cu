#include "tally/ops/elementwise.cuh"

namespace tally::gpu {
namespace {

using namespace internal;  // NOLINT: the constants of the rows

#define TALLY_RESIDUAL_In x
#define TALLY_RESIDUAL_Out y
#define TALLY_UNARY(function, name, residual, f, other, transcendental, g, ...)   \
  struct function##Row {                                                          \
    static constexpr int kIn = 1, kOut = 1;                                       \
    static constexpr bool kBroadcasts = false;                                    \
    template <class V>                                                            \
    __device__ static V F(V x) f template <class V>                               \
    __device__ static void Run(const V* in, V* out) {                             \
      out[0] = F(in[0]);                                                          \
    }                                                                             \
  };                                                                              \
  struct function##GradRow {                                                      \
    static constexpr int kIn = 2, kOut = 1;                                       \
    static constexpr bool kBroadcasts = false;                                    \
    template <class V>                                                            \
    __device__ static V F(V dy, V TALLY_RESIDUAL_##residual) g template <class V> \
    __device__ static void Run(const V* in, V* out) {                             \
      out[0] = F(in[0], in[1]);                                                   \
    }                                                                             \
  };
#define TALLY_UNARY_LINEAR(function, name, f, other)  \
  struct function##Row {                              \
    static constexpr int kIn = 1, kOut = 1;           \
    static constexpr bool kBroadcasts = false;        \
    template <class V>                                \
    __device__ static V F(V x) f template <class V>   \
    __device__ static void Run(const V* in, V* out) { \
      out[0] = F(in[0]);                              \
    }                                                 \
  };
#include "tally/ops/unary_rows.inc"

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchUnary(const GpuCall& call, UnaryRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_UNARY(function, ...) \
  case UnaryRow::k##function:      \
    return gpu::LaunchFloats<gpu::function##Row>(call, e);
#define TALLY_UNARY_LINEAR TALLY_UNARY
#include "tally/ops/unary_rows.inc"
  }
  return cudaErrorInvalidValue;
}

GpuError LaunchUnaryGrad(const GpuCall& call, UnaryRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_UNARY(function, ...) \
  case UnaryRow::k##function:      \
    return gpu::LaunchFloats<gpu::function##GradRow>(call, e);
#include "tally/ops/unary_rows.inc"
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tally::internal
