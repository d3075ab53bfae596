// A product of two f32[64,64] as a calibration has it, for machines made by hand.
#ifndef TALLY_TESTS_MEASURED_PRODUCT_H_
#define TALLY_TESTS_MEASURED_PRODUCT_H_

#include "tally/analysis/calibration.h"

namespace tally {

inline Sample MeasuredProduct(double seconds) {
  Sample product;
  product.work = {.op = "matmul",
                  .form = "NN",
                  .flops = 2 * 64 * 64 * 64,
                  .reuse = {64, 64, 64},
                  .products = 1,
                  .elements = 3 * 64 * 64,
                  .bytes = 4 * 3 * 64 * 64,
                  .least_bytes = 4 * 3 * 64 * 64};
  product.seconds = seconds;
  return product;
}

}  // namespace tally

#endif  // TALLY_TESTS_MEASURED_PRODUCT_H_
