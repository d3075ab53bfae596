// Kernels of the softmax family on contiguous data seen as [outer, n, inner].
#ifndef TALLY_OPS_SOFTMAX_ROWS_H_
#define TALLY_OPS_SOFTMAX_ROWS_H_

#include <cstdint>

#include "tally/ops/attention_mask.h"
#include "tally/tensor/element.h"

namespace tally {

struct SoftmaxRows {
  DType dtype = DType::kF32;
  int64_t outer = 1;
  int64_t n = 1;  // the axis
  int64_t inner = 1;
  double scale = 1;
  int64_t queries = 0;  // above 0: masked, row r is query r % queries
  AttentionMask mask;
  const KeyRange* ranges = nullptr;  // of every query; null: without documents
  bool log = false;

  // Elements of row r that count; the others are masked.
  KeyRange Seen(int64_t r) const {
    if (queries == 0) return {0, n};
    return ranges != nullptr ? ranges[r % queries] : VisibleKeys(mask, queries, n).Of(r % queries);
  }
};

// y from x.
void RunSoftmaxRows(const SoftmaxRows& s, const void* x, void* y);
// dx from y and dy.
void RunSoftmaxGradRows(const SoftmaxRows& s, const void* y, const void* dy, void* dx);

}  // namespace tally

#endif  // TALLY_OPS_SOFTMAX_ROWS_H_
