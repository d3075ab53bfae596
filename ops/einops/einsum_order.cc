// In which order the operands of an einsum meet.
#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>

#include "tally/ops/einops/einsum_terms.h"

namespace tally::einops {
namespace {

// Above it, greedily.
constexpr size_t kMostForDynamicProgramming = 8;
constexpr Count kMost = std::numeric_limits<Count>::max();

Count Times(Count a, int64_t b) { return b != 0 && a > kMost / b ? kMost : a * b; }
Count Plus(Count a, Count b) { return a > kMost - b ? kMost : a + b; }

struct Operand {
  int number;  // as Contraction counts
  LabelSet labels;
};

// The best known way to make one tensor of a subset of the operands.
struct Best {
  Count flops = kMost;
  Count elements = kMost;
  uint32_t left = 0;  // the part with the subset's first operand
  LabelSet labels = 0;
};

class Orderer {
 public:
  Orderer(const EinsumTerms& terms, std::vector<Operand> operands,
          std::vector<Contraction>* contractions)
      : t_(terms), operands_(std::move(operands)), out_(*contractions) {}

  void Order() {
    if (operands_.size() <= 1) return;
    operands_.size() <= kMostForDynamicProgramming ? Optimal() : Greedy();
  }

 private:
  // A result of more axes than a tensor can have is the last choice.
  Count Flops(LabelSet left, LabelSet right, LabelSet result) const {
    if (std::popcount(result) > kMaxRank) return kMost;
    const Contraction c{0, 0, left, right, result};
    return CostOf(t_, c).total();
  }

  void Optimal() {
    const uint32_t all = (1u << operands_.size()) - 1;
    std::vector<Best> best(all + 1);
    for (uint32_t set = 1; set <= all; ++set) {
      Best& b = best[set];
      LabelSet inside = 0, outside = t_.out_set();
      for (size_t i = 0; i < operands_.size(); ++i) {
        (set >> i & 1 ? inside : outside) |= operands_[i].labels;
      }
      b.labels = inside & outside;
      if (std::has_single_bit(set)) {
        b = {.flops = 0, .elements = 0, .left = 0, .labels = inside};
        continue;
      }
      const uint32_t first = set & -set;
      // Parts with the first operand, few and early operands first.
      for (uint32_t rest = set & ~first, part = 0;; part = (part - rest) & rest) {
        if (part == rest) break;
        const uint32_t left = first | part, right = set & ~left;
        const Count flops = Plus(Plus(best[left].flops, best[right].flops),
                                 Flops(best[left].labels, best[right].labels, b.labels));
        const Count elements = Plus(Plus(best[left].elements, best[right].elements),
                                    set == all ? 0 : Elements(t_, b.labels));
        if (b.left == 0 || std::tie(flops, elements) < std::tie(b.flops, b.elements)) {
          b.flops = flops;
          b.elements = elements;
          b.left = left;
        }
      }
    }
    Emit(best, all);
  }

  // The number of the operand that stands for `set`.
  int Emit(const std::vector<Best>& best, uint32_t set) {
    if (std::has_single_bit(set)) return operands_[std::countr_zero(set)].number;
    const uint32_t left = best[set].left, right = set & ~left;
    const int a = Emit(best, left);
    const int b = Emit(best, right);
    return Add({a, b, best[left].labels, best[right].labels, best[set].labels});
  }

  int Add(const Contraction& c) {
    out_.push_back(c);
    return static_cast<int>(t_.operands.size() + out_.size()) - 1;
  }

  void Greedy() {
    while (operands_.size() > 1) {
      size_t best_i = 0, best_j = 1;
      LabelSet best_labels = 0;
      std::pair<Count, Count> least{kMost, kMost};
      bool any = false;
      // Labels of at least one, two and three operands.
      LabelSet once = 0, twice = 0, thrice = 0;
      for (const Operand& x : operands_) {
        thrice |= twice & x.labels;
        twice |= once & x.labels;
        once |= x.labels;
      }
      for (size_t i = 0; i < operands_.size(); ++i) {
        for (size_t j = i + 1; j < operands_.size(); ++j) {
          const LabelSet a = operands_[i].labels, b = operands_[j].labels;
          const LabelSet elsewhere = (a & b & thrice) | ((a ^ b) & twice);
          const LabelSet labels = elsewhere | ((a | b) & t_.out_set());
          const std::pair<Count, Count> price{Flops(a, b, labels), Elements(t_, labels)};
          if (any && !(price < least)) continue;
          any = true;
          least = price;
          best_i = i;
          best_j = j;
          best_labels = labels;
        }
      }
      const int made = Add({operands_[best_i].number, operands_[best_j].number,
                            operands_[best_i].labels, operands_[best_j].labels, best_labels});
      operands_[best_i] = {made, best_labels};
      operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(best_j));
    }
  }

  const EinsumTerms& t_;
  std::vector<Operand> operands_;
  std::vector<Contraction>& out_;
};

}  // namespace

Count Elements(const EinsumTerms& terms, LabelSet labels) {
  Count product = 1;
  for (LabelSet rest = labels; rest != 0; rest &= rest - 1) {
    product = Times(product, terms.sizes[std::countr_zero(rest)]);
  }
  return product;
}

Cost CostOf(const EinsumTerms& terms, const Contraction& c) {
  if (c.b < 0) {
    const Count folded = Elements(terms, c.summed());
    const Count results = Elements(terms, c.result);
    const Count folds = folded > 0 ? folded - 1 : 0;
    return {.other = folds > 0 && results > kMost / folds ? kMost : results * folds};
  }
  const Count products = Elements(terms, c.all());
  if (c.summed() == 0) return {.other = products};
  return {.matmul = Times(products, kFlopsPerFma)};
}

std::vector<Contraction> OrderContractions(const EinsumTerms& terms) {
  const int n = static_cast<int>(terms.operands.size());
  std::vector<Contraction> contractions;
  std::vector<Operand> operands;
  for (int i = 0; i < n; ++i) {
    const LabelSet labels = terms.SetOf(i);
    LabelSet elsewhere = terms.out_set();
    for (int k = 0; k < n; ++k) {
      if (k != i) elsewhere |= terms.SetOf(k);
    }
    Operand operand{i, labels};
    if ((labels & ~elsewhere) != 0) {
      contractions.push_back({i, -1, labels, 0, labels & elsewhere});
      operand = {n + static_cast<int>(contractions.size()) - 1, labels & elsewhere};
    }
    operands.push_back(operand);
  }
  Orderer(terms, std::move(operands), &contractions).Order();
  return contractions;
}

}  // namespace tally::einops
