#include "tally/ops/step_gpu.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {
namespace {

using internal::AdamScalars;
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

// A rule takes one element of each of its arrays; those that the step does not have are null in
// `data`.
template <typename C_>
struct Adam {
  using C = C_;
  using Scalars = AdamScalars<C>;
  static __device__ void Do(const Scalars& s, void* const* /*data*/, C* x) {
    if (s.coupled) {
      internal::AdamRule<true>(s, x[0], x[1], x[2], x[3]);
    } else {
      internal::AdamRule<false>(s, x[0], x[1], x[2], x[3]);
    }
  }
};
template <typename C_>
struct Sgd {
  using C = C_;
  using Scalars = SgdScalars<C>;
  static __device__ void Do(const Scalars& s, void* const* data, C* x) {
    if (data[2] != nullptr) {
      internal::SgdMomentumRule(s, x[0], x[1], x[2]);
    } else {
      internal::SgdRule(s, x[0], x[1]);
    }
  }
};
template <typename C_>
struct RmsProp {
  using C = C_;
  using Scalars = RmsPropScalars<C>;
  static __device__ void Do(const Scalars& s, void* const* data, C* x) {
    const bool centered = data[3] != nullptr, momentum = data[4] != nullptr;
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

template <class Rule>
using Steps = internal::GpuSteps<typename Rule::Scalars>;
template <class Rule>
using Step = typename Steps<Rule>::Step;

// Elements [i, i + kN).
template <class Rule, int kN>
__device__ inline void StepAt(const Step<Rule>& step, const typename Rule::Scalars& scalars,
                              int64_t i) {
  using C = typename Rule::C;
  constexpr int kArrays = Rule::Scalars::kArrays;
  C x[kArrays][kN] = {};
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    if (step.data[a] != nullptr) Load<C, kN>(step.data[a], step.dtype[a], i, x[a]);
  }
#pragma unroll
  for (int k = 0; k < kN; ++k) {
    C element[kArrays];
#pragma unroll
    for (int a = 0; a < kArrays; ++a) element[a] = x[a][k];
    Rule::Do(scalars, step.data, element);
#pragma unroll
    for (int a = 0; a < kArrays; ++a) x[a][k] = element[a];
  }
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    const bool written = a != 1 && step.data[a] != nullptr;  // all but the gradient
    if (written) Store<C, kN>(step.data[a], step.dtype[a], i, x[a]);
  }
  if (step.rounded != nullptr) Store<C, kN>(step.rounded, step.rounded_dtype, i, x[0]);
}

// The step of a chunk: the last that begins at it or before.
template <class Rule>
__device__ inline int StepOf(const Steps<Rule>& steps, int64_t chunk) {
  int low = 0, high = steps.steps - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (steps.step[middle].first_chunk <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The compiler would take registers for two blocks to a multiprocessor: too few loads under way.
template <class Rule>
__global__ void __launch_bounds__(kBlock, 4)
    StepsKernel(const __grid_constant__ Steps<Rule> steps) {
  constexpr int kN = kVector<typename Rule::C>;
  for (int64_t chunk = blockIdx.x; chunk < steps.chunks; chunk += gridDim.x) {
    // Copies: beside loads from where they lie the compiler makes no vectors of the stores.
    const Step<Rule> step = steps.step[StepOf<Rule>(steps, chunk)];
    const typename Rule::Scalars scalars = steps.group[step.group];
    const int64_t begin = (chunk - step.first_chunk) * steps.chunk;
    const int64_t end = step.n - begin < steps.chunk ? step.n : begin + steps.chunk;
    const int64_t vectors_end = step.vectors ? end - (end - begin) % kN : begin;
    for (int64_t i = begin + int64_t{threadIdx.x} * kN; i < vectors_end;
         i += int64_t{blockDim.x} * kN) {
      StepAt<Rule, kN>(step, scalars, i);
    }
#pragma unroll 1
    for (int64_t i = vectors_end + threadIdx.x; i < end; i += blockDim.x) {
      StepAt<Rule, 1>(step, scalars, i);
    }
  }
}

template <class Rule>
bool CanStepByVectors(const Step<Rule>& step) {
  const auto aligned = [](const void* data, DType dtype) {
    const int64_t bytes = kVector<typename Rule::C> * ItemSize(dtype);
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
  };
  bool all = aligned(step.rounded, step.rounded_dtype);
  for (int a = 0; a < Rule::Scalars::kArrays; ++a) all &= aligned(step.data[a], step.dtype[a]);
  return all;
}

template <class Rule>
GpuError Run(const GpuCall& call, Steps<Rule>& steps) {
  static_assert(sizeof(Steps<Rule>) <= 4096);
  // The longest chunks that still fill the device, down to one vector for each thread. (No device
  // has memory for 2^32 chunks.)
  constexpr int32_t kShortest = kBlock * kVector<typename Rule::C>;
  steps.chunk = 8 * kShortest;
  for (;; steps.chunk /= 2) {
    int64_t chunks = 0;
    for (int i = 0; i < steps.steps; ++i) {
      steps.step[i].first_chunk = static_cast<uint32_t>(chunks);
      chunks += (steps.step[i].n + steps.chunk - 1) / steps.chunk;
    }
    steps.chunks = static_cast<uint32_t>(chunks);
    if (steps.chunk == kShortest || chunks >= int64_t{call.multiprocessors} * 16) break;
  }
  for (int i = 0; i < steps.steps; ++i) {
    steps.step[i].vectors = CanStepByVectors<Rule>(steps.step[i]);
  }
  return Launch(StepsKernel<Rule>, GridForPieces(steps.chunks), kBlock, 0, call, steps);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

#define TALLY_LAUNCH_STEPS(C)                                                     \
  GpuError LaunchSteps(const GpuCall& call, GpuSteps<AdamScalars<C>>& steps) {    \
    return gpu::Run<gpu::Adam<C>>(call, steps);                                   \
  }                                                                               \
  GpuError LaunchSteps(const GpuCall& call, GpuSteps<SgdScalars<C>>& steps) {     \
    return gpu::Run<gpu::Sgd<C>>(call, steps);                                    \
  }                                                                               \
  GpuError LaunchSteps(const GpuCall& call, GpuSteps<RmsPropScalars<C>>& steps) { \
    return gpu::Run<gpu::RmsProp<C>>(call, steps);                                \
  }
TALLY_LAUNCH_STEPS(float)
TALLY_LAUNCH_STEPS(double)

}  // namespace tally::internal
