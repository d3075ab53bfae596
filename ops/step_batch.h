// Where the steps of a GPU wait to be launched together. Not part of the interface for users.
//
// A step of an optimizer is one small op for each parameter; a model has hundreds. On a GPU the op
// only puts its arrays down, and one kernel does what has come together (gpu_defer.h says when): by
// one rule and compute type, of as many parameters as fit in its parameters. Steps of several rules
// and of f64 beside f32 wait apart from each other, groups of parameters with their own scalars
// together. A step that meets an array of one that waits starts that first, as do one too many
// and one too many groups.
#ifndef TALLY_OPS_STEP_BATCH_H_
#define TALLY_OPS_STEP_BATCH_H_

#include "absl/status/status.h"
#include "tally/ops/step_gpu.h"
#include "tally/tensor/device.h"

namespace tally::internal {

// Nothing for no elements. `op` names the step where its launch fails; it lives as long as the
// program. Of AdamScalars, SgdScalars and RmsPropScalars of float and double.
template <class Scalars>
absl::Status DeferStep(Device device, const char* op, const GpuStep<Scalars::kArrays>& step,
                       const Scalars& scalars);

}  // namespace tally::internal

#endif  // TALLY_OPS_STEP_BATCH_H_
