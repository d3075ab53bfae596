// Kernels of layer and RMS normalisation on contiguous rows.
//
// Without a place for means nothing is centred: RMS normalisation, whose weight is offset + w and
// which has no bias.
#ifndef TALLY_OPS_NORM_ROWS_H_
#define TALLY_OPS_NORM_ROWS_H_

#include <cstdint>

#include "tally/tensor/element.h"

namespace tally {

struct NormRows {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t n = 0;
  const void* x = nullptr;
  const void* weight = nullptr;  // null: ones
  const void* bias = nullptr;    // with a weight, when centred
  double offset = 0;             // added to the weight, when not centred
};

// y, and the statistics in their dtype. `mean` null: RMS.
void RunNormRows(const NormRows& a, double eps, void* y, void* mean, void* rstd);
// dx from dy. `mean` null: RMS.
void RunNormGradRows(const NormRows& a, const void* dy, const void* mean, const void* rstd,
                     void* dx);

// Rows whose sums one block of the parameters' gradient adds up.
inline constexpr int64_t kNormBlock = 64;
inline int64_t NormBlocks(int64_t rows) { return (rows + kNormBlock - 1) / kNormBlock; }
// Per block the sums of dy h and of dy over its rows: dw [blocks, n], db [blocks, n], in the
// statistics' dtype. `mean` null: RMS, and no db.
void RunNormParamGradBlocks(const NormRows& a, const void* dy, const void* mean, const void* rstd,
                            void* dw, void* db);

}  // namespace tally

#endif  // TALLY_OPS_NORM_ROWS_H_
