#include "tally/ops/elementwise.cuh"

namespace tally::gpu {
namespace {

// Bytes move; what they mean does not matter. `e` as in ElementwiseKernel.
template <typename T>
__global__ void SelectKernel(const __grid_constant__ GpuElementwise e, T number, bool vectors) {
  constexpr int kN = kVector<T>;
  const auto* cond = static_cast<const bool*>(e.in[0]);
  const T* const from[] = {static_cast<const T*>(e.in[1]), static_cast<const T*>(e.in[2])};
  T* const out = static_cast<T*>(e.out[0]);
  const auto offsets_of = [&](int64_t i) {
    Offsets<3> o{{i, i, i}};
    if (!e.flat) o = OffsetsOf<3>(e, i);
    for (int k = 0; k < 3; ++k) {
      if (e.repeats[k]) o.at[k] = 0;
    }
    return o;
  };
  bool stays[3];
  for (int k = 0; k < 3; ++k) stays[k] = e.repeats[k] || StaysAlongRows(e, k);
  const int64_t whole = vectors ? e.numel / kN : 0;
  for (int64_t i = GlobalThread(); i < whole; i += GlobalThreads()) {
    const Offsets<3> at = offsets_of(i * kN);
    const Vector<bool, kN> take = LoadInput<bool, kN>(cond, at.at[0], stays[0]);
    Vector<T, kN> side[2], y;
    for (int k = 0; k < 2; ++k) {
      const bool one = from[k] == nullptr;
      side[k] =
          LoadInput<T, kN>(one ? &number : from[k], one ? 0 : at.at[k + 1], one || stays[k + 1]);
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) y.v[j] = take.v[j] ? side[0].v[j] : side[1].v[j];
    StoreVector<T, kN>(out + i * kN, y);
  }
#pragma unroll 1
  for (int64_t i = whole * kN + GlobalThread(); i < e.numel; i += GlobalThreads()) {
    const Offsets<3> at = offsets_of(i);
    const int k = cond[at.at[0]] ? 0 : 1;
    out[i] = from[k] == nullptr ? number : from[k][at.at[k + 1]];
  }
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchSelect(const GpuCall& call, const GpuElementwise& e, uint64_t bits) {
  return gpu::VisitSize(ItemSize(e.dtype), [&](auto element) {
    using T = decltype(element);
    constexpr int kN = gpu::kVector<T>;
    const bool vectors =
        gpu::ReadsByVectors(e, 0, kN, sizeof(bool)) && gpu::ReadsByVectors(e, 1, kN, sizeof(T)) &&
        gpu::ReadsByVectors(e, 2, kN, sizeof(T)) && gpu::WritesByVectors(e, 0, kN, sizeof(T));
    const int64_t groups = vectors ? (e.numel + kN - 1) / kN : e.numel;
    return gpu::Launch(gpu::SelectKernel<T>, gpu::GridFor(call, groups), gpu::kBlock, 0, call, e,
                       static_cast<T>(bits), vectors);
  });
}

}  // namespace tally::internal
