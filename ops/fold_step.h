// One step of a reduction, as every device runs it. Not part of the interface for users.
#ifndef TALLY_OPS_FOLD_STEP_H_
#define TALLY_OPS_FOLD_STEP_H_

#include <cstdint>

#include "tally/tensor/element.h"
#include "tally/tensor/gpu_call.h"

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

// x of dtype `from` to y of dtype `to`: `from`, or what either computes in. Results are divided by
// `divisor` before they are rounded; 1 divides nothing.
[[gnu::weak]] GpuError LaunchFold(const GpuCall& call, FoldKind kind, const FoldStep& step,
                                  DType from, const void* x, DType to, void* y, double divisor);

}  // namespace tally

#endif  // TALLY_OPS_FOLD_STEP_H_
