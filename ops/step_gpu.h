// Optimizer steps on a GPU: as many as wait (step_batch.h) in one launch. Not part of the interface
// for users.
#ifndef TALLY_OPS_STEP_GPU_H_
#define TALLY_OPS_STEP_GPU_H_

#include <cstdint>

#include "tally/ops/step_rules.h"
#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

namespace tally::internal {

// Arrays of n elements, each of its own dtype: f64 all of them, or none. data[0] is the parameter
// or its master, data[1] the gradient, then the state; null where the step has none.
template <int kArrays>
struct GpuStep {
  int64_t n = 0;
  void* data[kArrays] = {};
  void* rounded = nullptr;  // the parameter beside its master
  DType dtype[kArrays] = {};
  DType rounded_dtype = DType::kF32;
  uint8_t group = 0;
  // The launcher's: a block takes a chunk of one step.
  bool vectors = false;
  uint32_t first_chunk = 0;
};

// Steps by one rule, of several groups of parameters; by value in the parameters of a kernel, for
// which every device and driver has 4 KiB.
template <class Scalars>
struct GpuSteps {
  using Step = GpuStep<Scalars::kArrays>;
  static constexpr int kMostGroups = 8;
  static constexpr int kMostSteps = (4096 - 16 - kMostGroups * static_cast<int>(sizeof(Scalars))) /
                                    static_cast<int>(sizeof(Step));

  int steps = 0, groups = 0;
  uint32_t chunks = 0;
  int32_t chunk = 0;  // elements; the last of a step is shorter
  Scalars group[kMostGroups] = {};
  Step step[kMostSteps] = {};
};

// Each array is read and written once. No step has n = 0, and none writes what another has. Of
// AdamScalars data[2] and data[3] are the moments; of SgdScalars data[2] is the buffer; of
// RmsPropScalars data[2] is the square, data[3] the mean, data[4] the buffer.
#define TALLY_LAUNCH_STEPS(C)                                                               \
  [[gnu::weak]] GpuError LaunchSteps(const GpuCall& call, GpuSteps<AdamScalars<C>>& steps); \
  [[gnu::weak]] GpuError LaunchSteps(const GpuCall& call, GpuSteps<SgdScalars<C>>& steps);  \
  [[gnu::weak]] GpuError LaunchSteps(const GpuCall& call, GpuSteps<RmsPropScalars<C>>& steps);
TALLY_LAUNCH_STEPS(float)   // f32 and narrower arrays
TALLY_LAUNCH_STEPS(double)  // f64
#undef TALLY_LAUNCH_STEPS

}  // namespace tally::internal

#endif  // TALLY_OPS_STEP_GPU_H_
