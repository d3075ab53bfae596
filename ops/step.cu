#include "tally/ops/step_gpu.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {
namespace {

using internal::AdamScalars;
using internal::GpuStep;
using internal::RmsPropScalars;
using internal::SgdScalars;

// kN neighbours of an array in the compute type, and back with one rounding.
template <typename T, typename C, int kN>
__device__ inline void LoadAs(const void* data, int64_t i, C* x) {
  const auto v = LoadVector<T, kN>(static_cast<const T*>(data) + i);
#pragma unroll
  for (int k = 0; k < kN; ++k) x[k] = Widen(v.v[k]);
}
template <typename T, typename C, int kN>
__device__ inline void StoreAs(void* data, int64_t i, const C* x) {
  Vector<T, kN> v;
#pragma unroll
  for (int k = 0; k < kN; ++k) v.v[k] = Narrow<T>(x[k]);
  StoreVector<T, kN>(static_cast<T*>(data) + i, v);
}
template <typename C, int kN>
__device__ inline void Load(const void* data, DType dtype, int64_t i, C* x) {
  if constexpr (sizeof(C) == 8) {
    LoadAs<double, C, kN>(data, i, x);
  } else if (dtype == DType::kF32) {
    LoadAs<float, C, kN>(data, i, x);
  } else if (dtype == DType::kBF16) {
    LoadAs<BF16, C, kN>(data, i, x);
  } else {
    LoadAs<F16, C, kN>(data, i, x);
  }
}
template <typename C, int kN>
__device__ inline void Store(void* data, DType dtype, int64_t i, const C* x) {
  if constexpr (sizeof(C) == 8) {
    StoreAs<double, C, kN>(data, i, x);
  } else if (dtype == DType::kF32) {
    StoreAs<float, C, kN>(data, i, x);
  } else if (dtype == DType::kBF16) {
    StoreAs<BF16, C, kN>(data, i, x);
  } else {
    StoreAs<F16, C, kN>(data, i, x);
  }
}

// A rule takes one element of each of its kArrays arrays.
template <typename C>
struct Adam {
  static constexpr int kArrays = 4;
  AdamScalars<C> s;
  bool coupled;
  __device__ void operator()(C* x) const {
    if (coupled) {
      internal::AdamRule<true>(s, x[0], x[1], x[2], x[3]);
    } else {
      internal::AdamRule<false>(s, x[0], x[1], x[2], x[3]);
    }
  }
};
template <typename C>
struct Sgd {
  static constexpr int kArrays = 3;
  SgdScalars<C> s;
  bool buffer;
  __device__ void operator()(C* x) const {
    if (buffer) {
      internal::SgdMomentumRule(s, x[0], x[1], x[2]);
    } else {
      internal::SgdRule(s, x[0], x[1]);
    }
  }
};
template <typename C>
struct RmsProp {
  static constexpr int kArrays = 5;
  RmsPropScalars<C> s;
  bool centered, momentum;
  __device__ void operator()(C* x) const {
    if (centered && momentum) {
      internal::RmsPropRule<true, true>(s, x[0], x[1], x[2], x[3], x[4]);
    } else if (centered) {
      internal::RmsPropRule<true, false>(s, x[0], x[1], x[2], x[3], x[4]);
    } else if (momentum) {
      internal::RmsPropRule<false, true>(s, x[0], x[1], x[2], x[3], x[4]);
    } else {
      internal::RmsPropRule<false, false>(s, x[0], x[1], x[2], x[3], x[4]);
    }
  }
};

// Elements [i, i + kN).
template <typename C, int kN, class Rule>
__device__ inline void StepAt(const GpuStep& step, const Rule& rule, int64_t i) {
  C x[Rule::kArrays][kN] = {};
#pragma unroll
  for (int a = 0; a < Rule::kArrays; ++a) {
    if (step.data[a] != nullptr) Load<C, kN>(step.data[a], step.dtype[a], i, x[a]);
  }
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    C element[Rule::kArrays];
#pragma unroll
    for (int a = 0; a < Rule::kArrays; ++a) element[a] = x[a][k];
    rule(element);
#pragma unroll
    for (int a = 0; a < Rule::kArrays; ++a) x[a][k] = element[a];
  }
#pragma unroll
  for (int a = 0; a < Rule::kArrays; ++a) {
    const bool written = a != 1 && step.data[a] != nullptr;  // all but the gradient
    if (written) Store<C, kN>(step.data[a], step.dtype[a], i, x[a]);
  }
  if (step.rounded != nullptr) Store<C, kN>(step.rounded, step.rounded_dtype, i, x[0]);
}

__device__ inline bool Aligned(const void* p, DType dtype, int n) {
  const int item = dtype == DType::kF64 ? 8 : dtype == DType::kF32 ? 4 : 2;
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(n * item) == 0;
}

template <typename C, class Rule>
__global__ void StepKernel(GpuStep step, Rule rule) {
  constexpr int kN = kVector<C>;
  bool vectors = Aligned(step.rounded, step.rounded_dtype, kN);
  for (int a = 0; a < Rule::kArrays; ++a) {
    vectors = vectors && Aligned(step.data[a], step.dtype[a], kN);
  }
  const int64_t whole = vectors ? step.n / kN : 0;
  for (int64_t g = GlobalThread(); g < whole; g += GlobalThreads()) {
    StepAt<C, kN>(step, rule, g * kN);
  }
#pragma unroll 1
  for (int64_t i = whole * kN + GlobalThread(); i < step.n; i += GlobalThreads()) {
    StepAt<C, 1>(step, rule, i);
  }
}

template <typename C, class Rule>
GpuError Run(const GpuCall& call, const GpuStep& step, const Rule& rule) {
  return Launch(StepKernel<C, Rule>, GridFor(call, (step.n + kVector<C> - 1) / kVector<C>), kBlock,
                0, call, step, rule);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

#define TALLY_STEP_LAUNCHERS(C)                                                                  \
  GpuError LaunchAdam(const GpuCall& call, const GpuStep& step, bool coupled,                    \
                      const AdamScalars<C>& scalars) {                                           \
    return gpu::Run<C>(call, step, gpu::Adam<C>{scalars, coupled});                              \
  }                                                                                              \
  GpuError LaunchSgd(const GpuCall& call, const GpuStep& step, const SgdScalars<C>& scalars) {   \
    return gpu::Run<C>(call, step, gpu::Sgd<C>{scalars, step.data[2] != nullptr});               \
  }                                                                                              \
  GpuError LaunchRmsProp(const GpuCall& call, const GpuStep& step,                               \
                         const RmsPropScalars<C>& scalars) {                                     \
    return gpu::Run<C>(                                                                          \
        call, step, gpu::RmsProp<C>{scalars, step.data[3] != nullptr, step.data[4] != nullptr}); \
  }
TALLY_STEP_LAUNCHERS(float)
TALLY_STEP_LAUNCHERS(double)

}  // namespace tally::internal
