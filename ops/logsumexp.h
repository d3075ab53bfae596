// log of the sum of exponentials. f64 f32 bf16 f16; narrow floats compute in f32 and round once.
//
//   y = log sum_k e^(x_k) = max + log sum_k e^(x_k - max)
//
// The op `logsumexp` is over one axis. Several axes are first made one: by a permutation and a
// reshape, views that copy x (recorded) where its strides ask for it. Over nothing, or over -inf
// alone, y is -inf; where +inf is among the x, +inf; where a NaN is, NaN.
//
// The gradient dx = dy softmax(x) is composed of softmax and mul and reads x alone: y in bf16 would
// be too coarse to rebuild the softmax from. A fused op would save one pass over dx, where models
// have one number a row (a router's z-loss).
//
// Cost per output element, n elements reduced into it (what a plain loop does):
//   other 3n-1: max n-1, differences n, sum n-1, sum with the max 1; transcendental n+1
//   (n = 0: the n-1 are 0.)  Its gradient: softmax's 4n-2 and n, and n products.
//
// Errors, thrown as Error (kInvalidArgument): an axis outside the shape or named twice; a dtype
// that is no computing float.
#ifndef TALLY_OPS_LOGSUMEXP_H_
#define TALLY_OPS_LOGSUMEXP_H_

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct LogSumExpAttrs {
  int32_t axis = -1;
  bool keepdim = false;
  static absl::Span<const AttrField> Fields();
};

// An empty list means all axes.
Tensor LogSumExp(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

extern const OpDef kLogSumExp;
OpFamily LogSumExpOps();

}  // namespace tally

#endif  // TALLY_OPS_LOGSUMEXP_H_
