// How a reduction over any axes becomes steps over one axis each. Used by the reduction kernels and
// by others that add up many rows.
#ifndef TALLY_OPS_REDUCE_PLAN_H_
#define TALLY_OPS_REDUCE_PLAN_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "tally/tensor/dtype.h"
#include "tally/tensor/shape.h"

namespace tally {

enum class FoldKind : uint8_t { kSum, kMax, kMin, kProd };

// One step: [outer, n, inner] -> [outer, blocks, inner]. Each block of the middle axis is folded
// by itself, `block` elements long; the next step folds the blocks.
struct FoldStep {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
  int64_t block = 1;
  int64_t blocks = 1;

  int64_t numel_out() const { return outer * blocks * inner; }
};

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

}  // namespace tally

#endif  // TALLY_OPS_REDUCE_PLAN_H_
