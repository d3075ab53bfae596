// Optimizer steps on a GPU. Not part of the interface for users.
#ifndef TALLY_OPS_STEP_GPU_H_
#define TALLY_OPS_STEP_GPU_H_

#include <cstdint>

#include "tally/ops/step_rules.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// Arrays of n elements, each of its own dtype: f64 all of them, or none. data[0] is the parameter
// or its master, data[1] the gradient, then the state; null where the step has none.
struct GpuStep {
  static constexpr int kMaxArrays = 5;

  int64_t n = 0;
  void* data[kMaxArrays] = {};
  DType dtype[kMaxArrays] = {};
  void* rounded = nullptr;  // the parameter beside its master
  DType rounded_dtype = DType::kF32;
};

// Each array is read and written once. For f32 (and narrower) arrays, and for f64.
[[gnu::weak]] GpuError LaunchAdam(const GpuCall& call, const GpuStep& step, bool coupled,
                                  const AdamScalars<float>& scalars);
[[gnu::weak]] GpuError LaunchAdam(const GpuCall& call, const GpuStep& step, bool coupled,
                                  const AdamScalars<double>& scalars);
// data[2] the buffer.
[[gnu::weak]] GpuError LaunchSgd(const GpuCall& call, const GpuStep& step,
                                 const SgdScalars<float>& scalars);
[[gnu::weak]] GpuError LaunchSgd(const GpuCall& call, const GpuStep& step,
                                 const SgdScalars<double>& scalars);
// data[2] the square, data[3] the mean, data[4] the buffer.
[[gnu::weak]] GpuError LaunchRmsProp(const GpuCall& call, const GpuStep& step,
                                     const RmsPropScalars<float>& scalars);
[[gnu::weak]] GpuError LaunchRmsProp(const GpuCall& call, const GpuStep& step,
                                     const RmsPropScalars<double>& scalars);

}  // namespace tally::internal

#endif  // TALLY_OPS_STEP_GPU_H_
