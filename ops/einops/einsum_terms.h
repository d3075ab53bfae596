// The parts of an einsum before it runs: its axes with sizes, and the order of its pairs.
#ifndef TALLY_OPS_EINOPS_EINSUM_TERMS_H_
#define TALLY_OPS_EINOPS_EINSUM_TERMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/ops/cost.h"
#include "tally/tensor/shape.h"

namespace tally::einops {

// Axes by number, at most 64 in a pattern.
using LabelSet = uint64_t;
inline constexpr int kMaxLabels = 64;
inline LabelSet Only(int label) { return LabelSet{1} << label; }

struct EinsumTerms {
  std::vector<std::string> names;            // by label
  std::vector<int64_t> sizes;                // by label; 1 only where every operand has 1
  std::vector<std::vector<int>> operands;    // the label of each axis; may repeat
  std::vector<std::vector<bool>> broadcast;  // axes of size 1 under a label of another size
  std::vector<int> out;

  LabelSet out_set() const;
  // The labels of an operand without its broadcast axes.
  LabelSet SetOf(int operand) const;
};

// Every error that pattern and specs can show is found here.
absl::StatusOr<EinsumTerms> ReadEinsum(absl::string_view pattern,
                                       absl::Span<const TensorSpec> operands);

// A sum over the labels that go away (b = -1), or the meeting of two operands. Operands are
// numbered: those of the call, then the results of the contractions in order.
struct Contraction {
  int a = 0;
  int b = -1;
  LabelSet left = 0, right = 0, result = 0;

  LabelSet all() const { return left | right; }
  LabelSet summed() const { return all() & ~result; }
};

// In the order that einsum.h states.
std::vector<Contraction> OrderContractions(const EinsumTerms& terms);

// Product of sizes; stays at its greatest value rather than overflow.
Count Elements(const EinsumTerms& terms, LabelSet labels);
Cost CostOf(const EinsumTerms& terms, const Contraction& c);

}  // namespace tally::einops

#endif  // TALLY_OPS_EINOPS_EINSUM_TERMS_H_
