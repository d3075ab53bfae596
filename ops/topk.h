// The k greatest elements of each row.
//
// Cost per row of n: other k·n - k(k+1)/2, the compares of a plain loop that looks k times for the
// greatest of what is left (n-1, n-2, ...). The kernel keeps a heap of k and compares less, how
// much less depends on the data. The gradient is one scatter_add: one add per value.
//
// Errors, thrown as Error (kInvalidArgument): a scalar, a dtype that is no computing float, k
// outside [0, n].
#ifndef TALLY_OPS_TOPK_H_
#define TALLY_OPS_TOPK_H_

#include <cstdint>

#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct TopKResult {
  Tensor values;   // [..., k], dtype of x
  Tensor indices;  // [..., k], i64, along the last axis
};

// Along the last axis of x [..., n], f64 f32 bf16 f16, in descending order. Equal elements come in
// order of index; a NaN is the greatest. The gradient of the values goes back to where they stood.
TopKResult TopK(const Tensor& x, int64_t k);

struct TopKAttrs {
  int64_t k = 1;
  static absl::Span<const AttrField> Fields();
};

extern const OpDef kTopK;  // x -> values, indices
OpFamily TopKOps();

}  // namespace tally

#endif  // TALLY_OPS_TOPK_H_
