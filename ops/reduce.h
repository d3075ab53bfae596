// Reductions over any set of axes. f64 f32 bf16 f16; narrow floats accumulate in f32 and round
// once.
//
// Axes may be negative; an empty list means all of them. A reduced axis goes away, or stays with
// size 1 under `keepdim`. Sums run in fixed lanes and a fixed tree of blocks, so their bits do not
// depend on the number of threads and their error hardly grows with the number of elements.
//
// Cost per output element, n elements reduced into it (what a plain loop does):
//   sum max min prod argmax   other n-1
//   mean                      other n-1 + 1 (division)
//   var                       other 4n: mean n-1 + 1, differences n, squares n, sum n-1, division 1
//   prod_grad                 other 3n-4: products of what comes before each element n-2, of what
//                             comes after it and dy n-1, of the two n-1; n = 1: 0
// (n = 0: the n-1 are 0, and so is prod_grad.)
//
// Errors, thrown as Error (kInvalidArgument): an axis outside the shape or named twice; a dtype
// that is no computing float; max, min or argmax over no elements.
#ifndef TALLY_OPS_REDUCE_H_
#define TALLY_OPS_REDUCE_H_

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct ReduceAttrs {
  Axes axes;
  bool keepdim = false;
  static absl::Span<const AttrField> Fields();
};
struct VarAttrs {
  Axes axes;
  int32_t correction = 1;
  bool keepdim = false;
  static absl::Span<const AttrField> Fields();
};
struct ArgMaxAttrs {
  int32_t axis = -1;
  bool keepdim = false;
  static absl::Span<const AttrField> Fields();
};

// Over no elements: 0.
Tensor Sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
// Over no elements: NaN.
Tensor Mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
// NaN if any element is. Equal extremes share the gradient evenly.
Tensor Max(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
Tensor Min(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
// Sum of squared differences from the mean over max(0, n - correction); two passes.
Tensor Var(const Tensor& x, const Axes& axes = {}, int correction = 1, bool keepdim = false);
// Over no elements: 1. Partial products of long rows can leave the range of the dtype where the
// whole product would not: their order is that of the lanes. The gradient of an element is the
// product of the others, right at zeros too and to every order. Between axes that are no neighbours
// it makes a copy of x.
Tensor Prod(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
// i64 position of the greatest element along `axis`: the first of equals; a NaN is the greatest.
Tensor ArgMax(const Tensor& x, int axis, bool keepdim = false);

// Undoes broadcasting: sums the axes that were added or stretched to get from `shape` to x's shape.
// x itself when there are none. Throws Error when `shape` does not broadcast to x's.
Tensor SumTo(const Tensor& x, const Shape& shape);

extern const OpDef kSum, kMean, kMax, kMin, kProd, kVar, kArgMax;
OpFamily ReduceOps();

}  // namespace tally

#endif  // TALLY_OPS_REDUCE_H_
