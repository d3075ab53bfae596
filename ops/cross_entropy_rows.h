// Kernels of cross entropy on contiguous rows of logits.
#ifndef TALLY_OPS_CROSS_ENTROPY_ROWS_H_
#define TALLY_OPS_CROSS_ENTROPY_ROWS_H_

#include <cstdint>

#include "tally/tensor/element.h"

namespace tally {

// Class indices of either integer type.
struct ClassIds {
  const void* ids = nullptr;
  bool wide = true;  // i64, else i32

  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(ids)[i] : static_cast<const int32_t*>(ids)[i];
  }
};

struct CrossEntropyRows {
  DType dtype = DType::kF32;  // of the logits
  int64_t rows = 0;
  int64_t classes = 0;
  int64_t ignore_index = -100;
  double smoothing = 0;
  const void* logits = nullptr;
  ClassIds targets;
};

// lse in the statistics' dtype, and the loss of each row in double.
void RunCrossEntropyRows(const CrossEntropyRows& a, void* lse, double* losses);
// dlogits, each row times `scale`.
void RunCrossEntropyGradRows(const CrossEntropyRows& a, const void* lse, double scale,
                             void* dlogits);

}  // namespace tally

#endif  // TALLY_OPS_CROSS_ENTROPY_ROWS_H_
