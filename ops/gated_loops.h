// The CPU loops of gated_rows.inc. Not part of the interface for users.
#ifndef TALLY_OPS_GATED_LOOPS_H_
#define TALLY_OPS_GATED_LOOPS_H_

#include "tally/ops/elementwise.h"
#include "tally/ops/elementwise_rows.h"

namespace tally::internal {

// da and db of n elements, from arrays.
template <typename T>
using GatedGradLoop = void (*)(const T* dy, const T* a, const T* b, T* da, T* db, int64_t n);

struct GatedLoops {
  FloatLoops forward;  // a, b
  GatedGradLoop<double> grad_f64 = nullptr;
  GatedGradLoop<float> grad_f32 = nullptr;
};
const GatedLoops& LoopsOf(GatedRow row);

// Fills da and db, contiguous and of dy's spec; dy, a and b may have strides.
void RunGatedGrad(GatedRow row, const Tensor& dy, const Tensor& a, const Tensor& b,
                  const Tensor& da, const Tensor& db);

}  // namespace tally::internal

#endif  // TALLY_OPS_GATED_LOOPS_H_
