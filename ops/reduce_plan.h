// How a reduction over any axes becomes steps over one axis each. Used by the reduction kernels and
// by others that add up many rows.
#ifndef TALLY_OPS_REDUCE_PLAN_H_
#define TALLY_OPS_REDUCE_PLAN_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "tally/ops/fold_step.h"
#include "tally/tensor/element.h"
#include "tally/tensor/shape.h"

namespace tally {

using FoldPlan = absl::InlinedVector<FoldStep, 4>;

// Elements that one block folds: enough to make its result cheap, few enough to keep sums exact.
inline constexpr int64_t kFoldRun = 2048;  // along a contiguous row
inline constexpr int64_t kFoldRows = 32;   // down the columns of a matrix

// The steps for the axes in `mask`: at least one, each reading what the one before wrote. None when
// there is no output.
FoldPlan PlanFold(const Shape& shape, uint32_t mask);

// Bytes FoldAll needs for elements of `dtype`: results between steps, in the compute type, and the
// last one when it must be rounded.
int64_t FoldScratch(DType dtype, const FoldPlan& plan);

// Runs the steps on contiguous x. Returns the result in the compute type (float or double), which
// lies in `out` when `dtype` is its own compute type, else in `scratch`.
void* FoldAll(FoldKind kind, DType dtype, const FoldPlan& plan, const void* x, void* out,
              void* scratch);

// The same on a GPU: from x of `dtype` to `out` of dtype `to` (`dtype`, or what it computes in),
// divided by `divisor` and rounded once.
GpuError FoldOnGpu(const GpuCall& call, FoldKind kind, DType dtype, const FoldPlan& plan,
                   const void* x, DType to, void* out, void* scratch, double divisor = 1);

}  // namespace tally

#endif  // TALLY_OPS_REDUCE_PLAN_H_
