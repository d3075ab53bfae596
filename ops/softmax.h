// Softmax and log-softmax along one axis, with the scale and the causal mask of attention fused in.
// f64 f32 bf16 f16; narrow floats compute in f32 and round once.
//
//   softmax      y_j = e^(s x_j) / sum_k e^(s x_k)       keeps y for its gradient
//   log_softmax  y_j = x_j - log sum_k e^(x_k)           keeps y for its gradient
//
// With a mask (causal, window, documents: ops/attention_mask.h) the last axis is keys, the one
// before queries. What a query does not see is exactly 0; a query that sees nothing is all 0.
// A row whose greatest visible entry is -inf, or with a visible NaN, is NaN.
//
// Cost per row of n (what a plain loop does; rows count nominally, all n, whatever a mask hides:
// causal, window or documents):
//   softmax           other 4n-2: max n-1, differences n, sum n-1, divisions n; + n when s != 1;
//                     transcendental n
//   softmax_grad      other 4n-1: products n, sum n-1, differences n, products n; + n when s != 1
//   log_softmax       other 4n-2: max n-1, differences n, sum n-1, differences n;
//                     transcendental n + 1
//   log_softmax_grad  other 3n-1: sum n-1, products n, differences n; transcendental n
//
// Errors, thrown as Error (kInvalidArgument): axis outside the shape, a dtype that is no computing
// float, a mask with an axis other than the last or fewer than two axes, a window below 0, document
// lengths that are not positive or do not add up, a scale that is not finite.
#ifndef TALLY_OPS_SOFTMAX_H_
#define TALLY_OPS_SOFTMAX_H_

#include "absl/types/span.h"
#include "tally/ops/attention_mask.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct SoftmaxOptions {
  int axis = -1;
  double scale = 1;
  bool causal = false;
  int64_t window = 0;
  Lengths documents = {};
};

struct SoftmaxAttrs {
  int32_t axis = -1;
  double scale = 1;
  bool causal = false;
  int64_t window = 0;
  Lengths documents;

  AttentionMask mask() const { return {causal, window, documents}; }
  static absl::Span<const AttrField> Fields();
};
struct LogSoftmaxAttrs {
  int32_t axis = -1;
  static absl::Span<const AttrField> Fields();
};

Tensor Softmax(const Tensor& x, const SoftmaxOptions& options = {});
Tensor LogSoftmax(const Tensor& x, int axis = -1);

// The gradients as ops: (y, dy) -> dx. They have no gradient themselves; under create_graph the
// rules are built of ops that do.
extern const OpDef kSoftmax, kSoftmaxGrad, kLogSoftmax, kLogSoftmaxGrad;
OpFamily SoftmaxOps();

}  // namespace tally

#endif  // TALLY_OPS_SOFTMAX_H_
