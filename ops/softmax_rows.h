// Kernels of the softmax family on contiguous data seen as [outer, n, inner].
#ifndef TALLY_OPS_SOFTMAX_ROWS_H_
#define TALLY_OPS_SOFTMAX_ROWS_H_

#include <cstdint>

#include "tally/tensor/dtype.h"

namespace tally {

struct SoftmaxRows {
  DType dtype = DType::kF32;
  int64_t outer = 1;
  int64_t n = 1;  // the axis
  int64_t inner = 1;
  double scale = 1;
  int64_t queries = 0;  // above 0: causal, row r is query r % queries
  bool log = false;

  // Elements of row r that count; the others are masked.
  int64_t Seen(int64_t r) const {
    if (queries == 0) return n;
    const int64_t seen = r % queries + 1 + n - queries;
    return seen < 0 ? 0 : seen;
  }
};

// y from x.
void RunSoftmaxRows(const SoftmaxRows& s, const void* x, void* y);
// dx from y and dy.
void RunSoftmaxGradRows(const SoftmaxRows& s, const void* y, const void* dy, void* dx);

}  // namespace tally

#endif  // TALLY_OPS_SOFTMAX_ROWS_H_
