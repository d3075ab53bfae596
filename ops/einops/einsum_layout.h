// How the operands of an einsum lie in memory, axis by axis.
#ifndef TALLY_OPS_EINOPS_EINSUM_LAYOUT_H_
#define TALLY_OPS_EINOPS_EINSUM_LAYOUT_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tally/ops/einops/einsum_terms.h"
#include "tally/ops/einops/program.h"

namespace tally::einops {

LabelSet SetOf(const Order& labels);

// An operand of the program: the label of each axis, all different, and its stride.
struct Laid {
  int operand = 0;
  Order labels;
  absl::InlinedVector<int64_t, 8> strides;

  LabelSet set() const { return SetOf(labels); }
};

// The labels of `set` in the order of `first`, then of `second`.
Order InOrder(LabelSet set, const Order& first, const Order& second = {});
// Where each of `labels` stands in `x`.
Order PositionsIn(const Laid& x, const Order& labels);

// In all of these, `sizes` are those of the labels. Axes of size 1 may have any stride.
Laid RowMajor(int operand, const Order& labels, absl::Span<const int64_t> sizes);
// Whether `count` axes from `at` lie as one.
bool Even(const Laid& x, size_t at, size_t count, absl::Span<const int64_t> sizes);
bool Contiguous(const Laid& x, absl::Span<const int64_t> sizes);
// Whether a matmul reads the last two slots of `x` as they lie; see ProductTakes.
bool TakenByProduct(const Laid& x, const Slots& slots, absl::Span<const int64_t> sizes);

}  // namespace tally::einops

#endif  // TALLY_OPS_EINOPS_EINSUM_LAYOUT_H_
