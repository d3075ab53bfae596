// Kernel of logsumexp on contiguous tensors.
#ifndef TALLY_OPS_LOGSUMEXP_ROWS_H_
#define TALLY_OPS_LOGSUMEXP_ROWS_H_

#include <cstdint>

#include "tally/tensor/element.h"

namespace tally {

// x [outer, n, inner] -> y [outer, inner].
struct LogSumExpRows {
  DType dtype = DType::kF32;
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
  const void* x = nullptr;
  void* y = nullptr;
};

void RunLogSumExpRows(const LogSumExpRows& a);

}  // namespace tally

#endif  // TALLY_OPS_LOGSUMEXP_ROWS_H_
