#include "tally/ops/elementwise.cuh"

namespace tally::gpu {
namespace {

#define TALLY_BINARY(function, name, dtypes, f, ...)     \
  struct function##Row {                                 \
    static constexpr int kIn = 2, kOut = 1;              \
    static constexpr bool kBroadcasts = true;            \
    template <class V>                                   \
    __device__ static V F(V a, V b) f template <class V> \
    __device__ static void Run(const V* in, V* out) {    \
      out[0] = F(in[0], in[1]);                          \
    }                                                    \
  };
#define TALLY_COMPARE(function, name, f)                    \
  struct function##Row {                                    \
    static constexpr int kIn = 2, kOut = 1;                 \
    static constexpr bool kBroadcasts = true;               \
    template <class V>                                      \
    __device__ static bool F(V a, V b) f template <class V> \
    __device__ static bool Compare(const V* in) {           \
      return F(in[0], in[1]);                               \
    }                                                       \
  };
#define TALLY_BINARY_GRAD(function, name, f, ...)              \
  struct function##Row {                                       \
    static constexpr int kIn = 3, kOut = 1;                    \
    static constexpr bool kBroadcasts = true;                  \
    template <class V>                                         \
    __device__ static V F(V dy, V a, V b) f template <class V> \
    __device__ static void Run(const V* in, V* out) {          \
      out[0] = F(in[0], in[1], in[2]);                         \
    }                                                          \
  };
#include "tally/ops/binary_rows.inc"

template <class Row>
GpuError LaunchFloat(const GpuCall& call, const GpuElementwise& e) {
  return LaunchFloats<Row>(call, e);
}
template <class Row>
GpuError LaunchNumber(const GpuCall& call, const GpuElementwise& e) {
  if (IsFloat(e.dtype)) return LaunchFloats<Row>(call, e);
  return VisitInteger(
      e.dtype, [&](auto element) { return LaunchElementwise<Row, decltype(element)>(call, e); });
}
// bool compares as u8.
template <class Row>
GpuError LaunchComparison(const GpuCall& call, const GpuElementwise& e) {
  const auto launch = [&](auto element) {
    return LaunchElementwise<Row, decltype(element), bool>(call, e);
  };
  if (e.dtype == DType::kBool) return launch(uint8_t{});
  return IsFloat(e.dtype) ? VisitFloat(e.dtype, launch) : VisitInteger(e.dtype, launch);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchBinary(const GpuCall& call, BinaryRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_BINARY(function, name, dtypes, ...) \
  case BinaryRow::k##function:                    \
    return gpu::Launch##dtypes<gpu::function##Row>(call, e);
#include "tally/ops/binary_rows.inc"
  }
  return cudaErrorInvalidValue;
}

GpuError LaunchCompare(const GpuCall& call, CompareRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_COMPARE(function, ...) \
  case CompareRow::k##function:      \
    return gpu::LaunchComparison<gpu::function##Row>(call, e);
#include "tally/ops/binary_rows.inc"
  }
  return cudaErrorInvalidValue;
}

GpuError LaunchBinaryGrad(const GpuCall& call, BinaryGradRow row, const GpuElementwise& e) {
  switch (row) {
#define TALLY_BINARY_GRAD(function, ...) \
  case BinaryGradRow::k##function:       \
    return gpu::LaunchFloats<gpu::function##Row>(call, e);
#include "tally/ops/binary_rows.inc"
  }
  return cudaErrorInvalidValue;
}

}  // namespace tally::internal
