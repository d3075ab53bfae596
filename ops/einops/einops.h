// Rearrange, Reduce and Repeat: axes by name, in the notation of einops.
//
//   Rearrange(x, "b t (h d) -> b h t d", {{"h", 12}})              split heads
//   Rearrange(x, "b h t d -> b t (h d)")                           merge them
//   Rearrange(x, "b c (y p) (x q) -> b (y x) (p q c)", {{"p", 16}, {"q", 16}})    patches
//   Reduce(x, "b c (y 2) (x 2) -> b c y x", ReduceBy::kMax)        pooling
//   Repeat(x, "b g t d -> b (g n) t d", {{"n", 4}})                groups of heads
//
// Left of "->" stands what x is, right what comes out. A word is an axis, parentheses are one axis
// made of several (the last varies fastest), 1 or () an axis of size 1, "..." any number of axes;
// on the right "..." may stand in parentheses. Sizes are those of x; of the axes of one parenthesis
// all but one must be known, from `sizes` or as a number.
//   Rearrange: the same names on both sides.
//   Reduce: axes missing on the right are reduced; on the left a number is an axis without a name.
//   Repeat: axes new on the right are repeated along; their sizes are in `sizes` or numbers.
//
// These are no ops of their own: they record the ops that one writes by hand, in this order, each
// only where it changes something:
//   1. reshape to the axes that part ways (axes that stay neighbours in one parenthesis stay one)
//   2. sum, mean, max, min, prod over all reduced axes at once, those of size 1 included; with
//      keepdim when the right side is then what stands there; no list of axes when it is all
//   3. transpose of axes i < j when exactly two exchange places, else permute
//   4. reshape and expand for the new axes of Repeat; axes new in front need no reshape
//   5. reshape to the right side
// Where no two axes exchange places, 1 and 5 are a single reshape. A reshape that only removes or
// only adds one axis of size 1 is squeeze or unsqueeze. A pattern that changes nothing returns x.
// Steps are views where strides allow, as always; only a reshape may copy, and only when no view
// can describe the result.
//
// What a pattern means is kept per thread for the patterns, dims and sizes used last, so that a
// call costs little more than the ops themselves.
//
// Errors, thrown as Error (kInvalidArgument), with the pattern and the place in it underlined: a
// pattern outside the grammar; "..." in parentheses on the left; another number of axes than x has;
// a name twice on a side or on the wrong side; sizes that are missing, unused, differ from x's or
// do not divide; more than 8 axes at once; and what the ops refuse (a reduction of integers).
#ifndef TALLY_OPS_EINOPS_EINOPS_H_
#define TALLY_OPS_EINOPS_EINOPS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/ops/einops/axis_sizes.h"
#include "tally/tensor/tensor.h"

namespace tally {

Tensor Rearrange(const Tensor& x, absl::string_view pattern, const AxisSizes& sizes = {});
// Tensors of one spec, first stacked along a new axis in front.
Tensor Rearrange(absl::Span<const Tensor> tensors, absl::string_view pattern,
                 const AxisSizes& sizes = {});

enum class ReduceBy : uint8_t { kSum, kMean, kMax, kMin, kProd };
const char* Name(ReduceBy by);  // "sum", ...

// Cost: that of the reduction, n elements reduced into each of the result: n - 1, and one division
// more for the mean.
Tensor Reduce(const Tensor& x, absl::string_view pattern, ReduceBy by, const AxisSizes& sizes = {});

Tensor Repeat(const Tensor& x, absl::string_view pattern, const AxisSizes& sizes = {});

}  // namespace tally

#endif  // TALLY_OPS_EINOPS_EINOPS_H_
