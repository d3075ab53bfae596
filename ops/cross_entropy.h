// Cross entropy of class indices against logits, in one pass over them, as PyTorch defines it.
//
// logits [..., C] (f64 f32 bf16 f16), targets [...] (i64 or i32). With lse_i = log sum_c e^(x_ic)
// and e = label_smoothing, row i costs
//   loss_i = lse_i - (1 - e) x_i,target - (e / C) sum_c x_ic
// and 0 where the target is ignore_index; the loss is their sum, or that over the number of rows
// that are not ignored (none: NaN). Sums over rows run in double, in one order.
//
// Op `cross_entropy` has two outputs, the loss (a scalar) and lse [...], both f32, or f64 for f64
// logits. Its gradient reads logits, targets and lse.
//
// Cost for N rows of C (what a plain loop does; ignored rows count like others):
//   cross_entropy       other N 3C (max C-1, differences C, sum C-1, lse 1, loss 1), + N (C+2) when
//                       smoothed (sum C-1, products 2, difference 1), + N-1 for the sum, + 1 for
//                       the mean; transcendental N (C+1)
//   cross_entropy_grad  other N (2C+1) (differences C, target 1, products C), + N C when smoothed,
//                       + 1 for the mean; transcendental N C
//   one_hot             0
//
// Errors, thrown as Error: kInvalidArgument for shapes, dtypes, label_smoothing outside [0, 1];
// kOutOfRange, before anything is written, for a target that is neither a class nor ignore_index.
#ifndef TALLY_OPS_CROSS_ENTROPY_H_
#define TALLY_OPS_CROSS_ENTROPY_H_

#include "absl/types/span.h"
#include "tally/ops/attrs.h"
#include "tally/ops/op_def.h"
#include "tally/ops/op_table.h"
#include "tally/tensor/tensor.h"

namespace tally {

enum class Reduction : uint8_t { kMean, kSum };

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
};

struct CrossEntropyAttrs {
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
  static absl::Span<const AttrField> Fields();
};
struct OneHotAttrs {
  int64_t classes = 0;
  int64_t ignore_index = -100;
  DType dtype = DType::kF32;
  static absl::Span<const AttrField> Fields();
};

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options = {});

// [...] -> [..., classes]: 1 where the class is the target, else 0; all 0 for ignore_index.
Tensor OneHot(const Tensor& targets, const OneHotAttrs& attrs);

// cross_entropy_grad: (logits, targets, lse, dy) -> dlogits.
extern const OpDef kCrossEntropy, kCrossEntropyGrad, kOneHot;
OpFamily CrossEntropyOps();

}  // namespace tally

#endif  // TALLY_OPS_CROSS_ENTROPY_H_
