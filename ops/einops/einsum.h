// Einsum: products of tensors by named axes, in the notation of einops or by single letters.
//
//   Einsum(q, k, "b h i d, b h j d -> b h i j")     scores of attention
//   Einsum(q, k, "bhid,bhjd->bhij")                 the same by letters
//   Einsum(x, w, "... i, o i -> ... o")             a linear layer
//
// A pattern with a space anywhere names its axes by words; a pattern without any is the classic
// form, in which every letter is an axis. Each operand's axes stand before "->", separated by
// commas, the result's behind it; "->" is required. The result sums, over every axis that it does
// not name, the products of the operands' elements. "..." stands for any number of axes, aligned at
// the last as in NumPy; where the result has none they are summed. An axis of size 1 broadcasts
// against the same name elsewhere. A name twice in one operand takes the diagonal.
//
// What runs, and is recorded, are existing ops:
//   - a diagonal is reshape and slice: a view where strides allow
//   - an axis that only one operand names, and not the result, is summed before anything else
//   - then two operands at a time meet in one matmul, or in one mul where no axis is summed
//   - of all ways to put a matmul (which operand is the left one, transposed or not, which axes
//     become its rows, columns and leading axes) the one that copies the fewest elements is taken,
//     of these the one that repeats operands along the fewest leading axes, then the one of fewest
//     nodes, then the one that moves the fewest axes
// so a product that fits as it is (rows of x by a matrix, heads by heads) is that matmul alone, and
// every other arrangement is views as a person would write them (see einops.h).
//
// Order of contraction: with up to 8 operands the one of fewest FLOPs over all trees of pairs,
// outer products included, then of fewest elements in intermediate results (dynamic programming
// over subsets, 3^n steps); with more, each time the pair of fewest FLOPs, then of the smallest
// result. Ties go to the operands that stand first. PlanEinsum shows it.
//
// Errors, thrown as Error (kInvalidArgument), with the pattern and the place in it underlined: a
// pattern outside the grammar, parentheses and numbers (rearrange first), another number of
// operands or axes than given, sizes that differ under one name, a result axis that no operand has
// or that stands twice; more than 64 names; and what matmul, mul and sum refuse.
#ifndef TALLY_OPS_EINOPS_EINSUM_H_
#define TALLY_OPS_EINOPS_EINSUM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/ops/apply.h"
#include "tally/ops/cost.h"
#include "tally/tensor/tensor.h"

namespace tally {

Tensor Einsum(absl::Span<const Tensor> operands, absl::string_view pattern);
Tensor Einsum(const Tensor& a, absl::string_view pattern);
Tensor Einsum(const Tensor& a, const Tensor& b, absl::string_view pattern);
Tensor Einsum(const Tensor& a, const Tensor& b, const Tensor& c, absl::string_view pattern);
Tensor Einsum(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d,
              absl::string_view pattern);

// One op that computes. Operands are numbered: those of the call, then the results of the steps.
struct EinsumStep {
  const char* op = "";  // "sum", "mul", "matmul"
  int a = 0;
  int b = -1;           // -1 in a sum
  std::string pattern;  // "b h i d, b h j d -> b h i j"
  TensorSpec result;    // axes as in `pattern`; in memory they may lie in another order
  Cost cost;
};

struct EinsumPlan {
  std::string pattern;
  std::vector<TensorSpec> operands;
  std::vector<EinsumStep> steps;  // none: a view of the one operand
  TensorSpec result;
  Cost cost;  // of all steps: what a tape records

  // One line for each step:
  //   #3 = matmul #0 #1   i j, j k -> i k   f32[8,16]   4,096 FLOPs
  std::string ToString() const;
};

// The plan that Einsum follows for operands of these specs, which do not have to exist.
absl::StatusOr<EinsumPlan> PlanEinsum(absl::string_view pattern,
                                      absl::Span<const TensorSpec> operands);

}  // namespace tally

#endif  // TALLY_OPS_EINOPS_EINSUM_H_
