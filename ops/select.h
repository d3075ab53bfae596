// Choosing elements by a mask. Costs are 0: a select is not arithmetic.
#ifndef TALLY_OPS_SELECT_H_
#define TALLY_OPS_SELECT_H_

#include "tally/ops/op_table.h"

namespace tally {

// cond ? a : b, elementwise. cond is bool, a and b have one dtype, any; all three broadcast. The
// gradients read cond alone.
Tensor Where(const Tensor& cond, const Tensor& a, const Tensor& b);

// x with `value` where mask is true. mask is bool and broadcasts to x's shape; any dtype. With
// `where_false` the value goes where mask is false. The gradient reads the mask alone.
struct MaskedFillAttrs {
  double value = 0;
  bool where_false = false;
  static absl::Span<const AttrField> Fields();
};
Tensor MaskedFill(const Tensor& x, const Tensor& mask, double value, bool where_false = false);

OpFamily SelectOps();

}  // namespace tally

#endif  // TALLY_OPS_SELECT_H_
