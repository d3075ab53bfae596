#include "tally/ops/elementwise.cuh"

namespace tally::gpu {
namespace {

using namespace internal;  // NOLINT: the constants of the rows

#define TALLY_GATED(function, name, f, other, transcendental, g, ...)           \
  struct function##Row {                                                        \
    static constexpr int kIn = 2, kOut = 1;                                     \
    static constexpr bool kBroadcasts = true;                                   \
    template <class V>                                                          \
    __device__ static V F(V a, V b) f template <class V>                        \
    __device__ static void Run(const V* in, V* out) {                           \
      out[0] = F(in[0], in[1]);                                                 \
    }                                                                           \
  };                                                                            \
  struct function##GradRow {                                                    \
    static constexpr int kIn = 3, kOut = 2;                                     \
    static constexpr bool kBroadcasts = true;                                   \
    template <class V>                                                          \
    __device__ static void G(V dy, V a, V b, V& da, V& db) g template <class V> \
    __device__ static void Run(const V* in, V* out) {                           \
      G(in[0], in[1], in[2], out[0], out[1]);                                   \
    }                                                                           \
  };
#include "tally/ops/gated_rows.inc"

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchGated(const GpuCall& call, GatedRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_GATED(function, ...) \
  case GatedRow::k##function:      \
    return gpu::LaunchFloats<gpu::function##Row>(call, e);
#include "tally/ops/gated_rows.inc"
  }
  return cudaErrorInvalidValue;
}

GpuError LaunchGatedGrad(const GpuCall& call, GatedRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_GATED(function, ...) \
  case GatedRow::k##function:      \
    return gpu::LaunchFloats<gpu::function##GradRow>(call, e);
#include "tally/ops/gated_rows.inc"
  }
  return cudaErrorInvalidValue;
}

}  // namespace tally::internal
