#include "tally/ops/dropout_gpu.h"

#include "tally/tensor/kernel.cuh"
#include "tally/tensor/philox.h"

namespace tally::gpu {
namespace {

using internal::GpuDropout;

constexpr int kGroup = 8;  // elements that a thread takes at a time
constexpr int kWords = 4;  // of a random block

struct Keep {
  bool v[kGroup];
};

// Of elements [first, first + kGroup), whose words lie in two blocks, or three.
__device__ inline Keep MakeMask(const GpuDropout& d, int64_t first) {
  const uint64_t word = d.offset + static_cast<uint64_t>(first);
  const int shift = static_cast<int>(word % kWords);
  uint32_t words[kGroup + kWords] = {};
#pragma unroll
  for (int b = 0; b * kWords < kGroup + kWords; ++b) {
    if (b * kWords >= kGroup + shift) break;
    const auto block = RandomBlock(d.seed, d.stream, word / kWords + static_cast<uint64_t>(b));
#pragma unroll
    for (int k = 0; k < kWords; ++k) words[b * kWords + k] = block[static_cast<size_t>(k)];
  }
  Keep keep;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    // Not words[i + shift]: registers have no indexes.
    const uint32_t own = shift == 0   ? words[i]
                         : shift == 1 ? words[i + 1]
                         : shift == 2 ? words[i + 2]
                                      : words[i + 3];
    keep.v[i] = own >> 8 >= d.threshold;
  }
  return keep;
}

template <typename T, bool kMake>
__global__ void DropoutKernel(GpuDropout d, Compute<T> scale) {
  constexpr int kN = kVector<T> < kGroup ? kVector<T> : kGroup;
  const auto* const x = static_cast<const T*>(d.x);
  auto* const y = static_cast<T*>(d.y);
  const bool vectors =
      CanVectorize(x) && CanVectorize(y) && reinterpret_cast<uintptr_t>(d.mask) % kGroup == 0;
  const int64_t groups = (d.n + kGroup - 1) / kGroup;
  for (int64_t g = GlobalThread(); g < groups; g += GlobalThreads()) {
    const int64_t first = g * kGroup;
    Keep keep{};
    if constexpr (kMake) keep = MakeMask(d, first);
    if (vectors && first + kGroup <= d.n) {
      Vector<bool, kGroup> mask;
      if constexpr (kMake) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) mask.v[i] = keep.v[i];
        StoreVector<bool, kGroup>(d.mask + first, mask);
      } else {
        mask = LoadVector<bool, kGroup>(d.mask + first);
      }
#pragma unroll
      for (int part = 0; part < kGroup; part += kN) {
        auto v = LoadVector<T, kN>(x + first + part);
#pragma unroll
        for (int i = 0; i < kN; ++i) {
          v.v[i] = Narrow<T>(mask.v[part + i] ? Widen(v.v[i]) * scale : Compute<T>());
        }
        StoreVector<T, kN>(y + first + part, v);
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (first + i >= d.n) break;
      bool kept = keep.v[i];
      if constexpr (kMake) {
        d.mask[first + i] = kept;
      } else {
        kept = d.mask[first + i];
      }
      y[first + i] = Narrow<T>(kept ? Widen(x[first + i]) * scale : Compute<T>());
    }
  }
}

template <bool kMake>
GpuError Run(const GpuCall& call, const GpuDropout& d) {
  return VisitFloat(d.dtype, [&](auto element) {
    return Launch(DropoutKernel<decltype(element), kMake>,
                  GridFor(call, (d.n + kGroup - 1) / kGroup), kBlock, 0, call, d, d.scale);
  });
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchDropout(const GpuCall& call, const GpuDropout& d) { return gpu::Run<true>(call, d); }
GpuError LaunchDropoutGrad(const GpuCall& call, const GpuDropout& d) {
  return gpu::Run<false>(call, d);
}

}  // namespace tally::internal
