// What the normalising ops share around their kernels: checks, shapes of statistics, and the sums
// of the parameters' gradients. Not part of the interface for users.
#ifndef TALLY_OPS_NORM_CALL_H_
#define TALLY_OPS_NORM_CALL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tally/ops/norm_rows.h"
#include "tally/ops/op_def.h"

namespace tally::internal {

// Input `index` is a computing float with a last axis to normalise. `names` as in InvalidCall.
absl::Status CheckNormX(const OpCall& call, int index, const char* names);
absl::Status CheckNormEps(const OpCall& call, double eps, const char* names);
// Input `index` is of x's dtype with its last dim; the message says `what` is.
absl::Status CheckNormParam(const OpCall& call, const TensorSpec& x, int index, const char* what,
                            const char* names);
// dy (input 0) is like x (input 1); inputs [2, end) are statistics of x.
absl::Status CheckNormGrad(const OpCall& call, int end, const char* names);

// One number for each row of x.
TensorSpec NormStatSpec(const TensorSpec& x);
// Rows that hold elements.
Count NormRowCount(const TensorSpec& x);
NormRows NormRowsOf(const Tensor& x);
// y and the statistics, on the device of x. `mean` null: RMS. Rows without elements have NaN as
// their statistics: a mean over nothing.
absl::Status RunNorm(NormRows rows, double eps, const Tensor& y, Tensor* mean, Tensor& rstd);
// dx from dy, on their device. `mean` null: RMS.
absl::Status RunNormGrad(const NormRows& rows, const Tensor& dy, const Tensor* mean,
                         const Tensor& rstd, const Tensor& dx);

// Parameters' gradients: sums over blocks of rows first, then the blocks' sums as any other sum.
int64_t NormParamScratch(const TensorSpec& x, int params);
// Output i of `k` is the gradient of parameter i.
absl::Status RunNormParamGrad(const KernelArgs& k, const Tensor& dy, const Tensor& x,
                              const Tensor* mean, const Tensor& rstd);

}  // namespace tally::internal

#endif  // TALLY_OPS_NORM_CALL_H_
