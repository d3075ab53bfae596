// Axes of reductions: checking them, and shapes with and without them.
#ifndef TALLY_OPS_REDUCE_AXES_H_
#define TALLY_OPS_REDUCE_AXES_H_

#include <cstdint>

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"

namespace tally {

// Bit a is set for each axis to reduce; `axes` must be valid. An empty list means all.
uint32_t AxisMask(const Axes& axes, int rank);

// Elements reduced into one. Capped at 2^63-1, which only shapes without elements reach.
int64_t CountOf(const Shape& x, uint32_t mask);

// Operations that combine n elements into one: n - 1, and none for none.
inline Count Folds(int64_t n) { return n > 0 ? n - 1 : 0; }

// The spec of one floating input with `axes` gone, or of size 1; and what is wrong with them.
absl::Status InferAxes(const OpCall& call, const Axes& axes, bool keepdim, Specs& out);

// A reduced tensor as it would be under keepdim: a view.
Tensor KeepDims(const Tensor& y, const Shape& x, uint32_t mask, bool keepdim);

}  // namespace tally

#endif  // TALLY_OPS_REDUCE_AXES_H_
