#include "tally/ops/einops/einsum_layout.h"

#include <algorithm>

namespace tally::einops {
namespace {

// Of `count` axes from `at` that lie as one.
int64_t StrideOf(const Laid& x, size_t at, size_t count, absl::Span<const int64_t> sizes) {
  for (size_t i = at + count; i-- > at;) {
    if (sizes[x.labels[i]] != 1) return x.strides[i];
  }
  return 1;
}

// Lines of unit stride that do not overlap.
bool AreLines(int64_t outer, int64_t outer_stride, int64_t inner, int64_t inner_stride) {
  return (inner <= 1 || inner_stride == 1) && (outer <= 1 || outer_stride >= inner);
}

}  // namespace

LabelSet SetOf(const Order& labels) {
  LabelSet set = 0;
  for (int label : labels) set |= Only(label);
  return set;
}

Order InOrder(LabelSet set, const Order& first, const Order& second) {
  Order order;
  for (const Order* from : {&first, &second}) {
    for (int label : *from) {
      if ((set & Only(label)) != 0) order.push_back(label);
      set &= ~Only(label);
    }
  }
  return order;
}

Order PositionsIn(const Laid& x, const Order& labels) {
  Order order;
  for (int label : labels) {
    const auto it = std::find(x.labels.begin(), x.labels.end(), label);
    order.push_back(static_cast<int>(it - x.labels.begin()));
  }
  return order;
}

Laid RowMajor(int operand, const Order& labels, absl::Span<const int64_t> sizes) {
  Laid x{operand, labels, {}};
  x.strides.resize(labels.size());
  int64_t step = 1;
  for (size_t i = labels.size(); i-- > 0;) {
    x.strides[i] = step;
    step *= std::max<int64_t>(sizes[labels[i]], 1);
  }
  return x;
}

bool Even(const Laid& x, size_t at, size_t count, absl::Span<const int64_t> sizes) {
  int inner = -1;  // the next axis inwards that is longer than 1
  for (size_t i = at + count; i-- > at;) {
    if (sizes[x.labels[i]] == 1) continue;
    if (inner >= 0 && x.strides[i] != x.strides[inner] * sizes[x.labels[inner]]) return false;
    inner = static_cast<int>(i);
  }
  return true;
}

bool Contiguous(const Laid& x, absl::Span<const int64_t> sizes) {
  const size_t all = x.labels.size();
  return Even(x, 0, all, sizes) && StrideOf(x, 0, all, sizes) == 1;
}

bool TakenByProduct(const Laid& x, const Slots& slots, absl::Span<const int64_t> sizes) {
  const Slot &row = slots[slots.size() - 2], &col = slots.back();
  const size_t cols_at = x.labels.size() - col.size(), rows_at = cols_at - row.size();
  const int64_t rows = SlotSize(sizes, row), cols = SlotSize(sizes, col);
  const int64_t row_stride = StrideOf(x, rows_at, row.size(), sizes);
  const int64_t col_stride = StrideOf(x, cols_at, col.size(), sizes);
  return AreLines(rows, row_stride, cols, col_stride) ||
         AreLines(cols, col_stride, rows, row_stride);
}

}  // namespace tally::einops
