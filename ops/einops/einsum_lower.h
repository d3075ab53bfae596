// From contractions to views, products and sums.
#ifndef TALLY_OPS_EINOPS_EINSUM_LOWER_H_
#define TALLY_OPS_EINOPS_EINSUM_LOWER_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/ops/apply.h"
#include "tally/ops/einops/einsum_terms.h"
#include "tally/ops/einops/program.h"

namespace tally::einops {

// The program for operands that lie in memory as these do. Error (kInvalidArgument): a result on
// the way has more than 8 axes.
absl::StatusOr<Program> LowerEinsum(const EinsumTerms& terms,
                                    const std::vector<Contraction>& contractions,
                                    absl::Span<const TensorArg> operands);

}  // namespace tally::einops

#endif  // TALLY_OPS_EINOPS_EINSUM_LOWER_H_
