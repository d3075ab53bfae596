#include "tally/ops/einops/einsum_terms.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/einops/pattern.h"
#include "tally/tensor/check.h"

namespace tally::einops {
namespace {

constexpr absl::string_view kOp = "einsum";

struct Word {
  absl::string_view name;  // "" is "..."
  Extent at;
};
struct Term {
  std::vector<Word> words;
  Extent at;
  bool ellipsis = false;
};

class TermReader {
 public:
  TermReader(absl::string_view pattern, absl::Span<const TensorSpec> specs)
      : pattern_(pattern), specs_(specs) {}

  absl::StatusOr<EinsumTerms> Read() {
    TALLY_ASSIGN_OR_RETURN(const Extent arrow, FindArrow(kOp, pattern_));
    classic_ = std::none_of(pattern_.begin(), pattern_.end(), IsSpace);
    const int size = static_cast<int>(pattern_.size());
    std::vector<Term> terms;
    for (int begin = 0; begin <= arrow.begin;) {
      const int end = static_cast<int>(std::min<size_t>(pattern_.find(',', begin), arrow.begin));
      TALLY_ASSIGN_OR_RETURN(Term term, ReadTerm({begin, end}));
      terms.push_back(std::move(term));
      begin = end + 1;
    }
    TALLY_ASSIGN_OR_RETURN(const Term out, ReadTerm({arrow.end, size}));
    if (terms.size() != specs_.size()) {
      return Bad({0, arrow.begin}, absl::StrCat("the pattern has ", terms.size(),
                                                terms.size() == 1 ? " operand" : " operands",
                                                ", the call ", specs_.size()));
    }
    for (const TensorSpec& spec : specs_) {
      if (spec.dtype != specs_[0].dtype) {
        return Bad({0, arrow.begin}, "operands differ in dtype; cast them");
      }
    }
    for (size_t i = 0; i < terms.size(); ++i) TALLY_RETURN_IF_ERROR(TakeOperand(i, terms[i]));
    TALLY_RETURN_IF_ERROR(TakeResult(out, terms));
    MarkBroadcast();
    return std::move(t_);
  }

 private:
  // Says what the operands are, few enough of them to read.
  absl::Status Bad(Extent at, std::string message) const {
    for (size_t i = 0; i < specs_.size() && i < 6; ++i) {
      absl::StrAppend(&message, i == 0 ? ": " : ", ", "operand ", i, " is ", specs_[i].ToString());
    }
    if (specs_.size() > 6) absl::StrAppend(&message, ", and ", specs_.size() - 6, " more");
    return PatternError(kOp, pattern_, at, message);
  }

  absl::StatusOr<Term> ReadTerm(Extent at) const {
    Term term{.words = {}, .at = at};
    for (int i = at.begin; i < at.end;) {
      const char c = pattern_[i];
      if (IsSpace(c)) {
        ++i;
        continue;
      }
      Word word;
      int end = i + 1;
      if (IsLetter(c)) {
        if (!classic_) end = EndOfName(pattern_, i, at.end);
        word.name = pattern_.substr(i, end - i);
        if (word.name.back() == '_') {
          return Bad({i, end}, "a name does not end with an underscore");
        }
      } else if (pattern_.substr(i, std::min(3, at.end - i)) == "...") {
        end = i + 3;
        if (term.ellipsis) return Bad({i, end}, "a second '...' in one operand");
        term.ellipsis = true;
      } else {
        return Bad({i, end}, Unexpected(c));
      }
      word.at = {i, end};
      term.words.push_back(word);
      i = end;
    }
    return term;
  }

  static std::string Unexpected(char c) {
    if (c == '(' || c == ')')
      return "parentheses are for rearrange; split or merge axes there first";
    if (IsDigit(c)) return "numbers are for rearrange; add or remove axes there first";
    if (c == ',') return "',' behind '->'";
    if (c == '.') return "'.' outside '...'";
    if (c == '_') return "a name begins with a letter";
    if (c > ' ' && c < 127) return absl::StrCat("'", std::string(1, c), "' means nothing here");
    return "a sign that means nothing here";
  }

  // The label of a name; -1 where there are too many.
  int LabelOf(const std::string& name) {
    const auto it = std::find(t_.names.begin(), t_.names.end(), name);
    if (it != t_.names.end()) return static_cast<int>(it - t_.names.begin());
    if (t_.names.size() == kMaxLabels) return -1;
    t_.names.push_back(name);
    t_.sizes.push_back(1);
    from_.push_back(-1);
    return static_cast<int>(t_.names.size()) - 1;
  }

  // "..." axes are named by their place from the end: "...1" is the last.
  static std::string EllipsisName(int from_end) { return absl::StrCat("...", from_end); }

  absl::Status TakeOperand(size_t i, const Term& term) {
    const int rank = specs_[i].rank(), words = static_cast<int>(term.words.size()) - term.ellipsis;
    if (term.ellipsis ? words > rank : words != rank) {
      return Bad(term.at, absl::StrCat("operand ", i, " has ", rank, rank == 1 ? " axis" : " axes",
                                       ", the pattern ", term.ellipsis ? "at least " : "", words,
                                       classic_ ? "; without a space every letter is an axis"
                                                : "; with spaces every word is an axis"));
    }
    std::vector<int>& labels = t_.operands.emplace_back();
    for (const Word& word : term.words) {
      if (word.name.empty()) {
        const int count = rank - words;
        ellipsis_axes_ = std::max(ellipsis_axes_, count);
        for (int k = count; k > 0; --k) {
          TALLY_RETURN_IF_ERROR(TakeAxis(i, EllipsisName(k), word.at, labels));
        }
      } else {
        TALLY_RETURN_IF_ERROR(TakeAxis(i, std::string(word.name), word.at, labels));
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeAxis(size_t operand, const std::string& name, Extent at,
                        std::vector<int>& labels) {
    const int label = LabelOf(name);
    if (label < 0) return Bad(at, absl::StrCat("more than ", kMaxLabels, " names"));
    const int64_t dim = specs_[operand].shape[static_cast<int>(labels.size())];
    for (size_t k = 0; k < labels.size(); ++k) {
      if (labels[k] != label || specs_[operand].shape[static_cast<int>(k)] == dim) continue;
      return Bad(at,
                 absl::StrCat("axis '", name, "' is ", specs_[operand].shape[static_cast<int>(k)],
                              " and ", dim, " in operand ", operand));
    }
    labels.push_back(label);
    if (t_.sizes[label] != 1 && dim != 1 && t_.sizes[label] != dim) {
      return Bad(at, absl::StrCat("axis '", name, "' is ", t_.sizes[label], " in operand ",
                                  from_[label], " and ", dim, " in operand ", operand));
    }
    if (dim != 1 && t_.sizes[label] == 1) {
      t_.sizes[label] = dim;
      from_[label] = static_cast<int>(operand);
    }
    return absl::OkStatus();
  }

  absl::Status TakeResult(const Term& out, const std::vector<Term>& terms) {
    for (const Word& word : out.words) {
      if (word.name.empty()) {
        const bool any =
            std::any_of(terms.begin(), terms.end(), [](const Term& term) { return term.ellipsis; });
        if (!any) return Bad(word.at, "'...' in the result but in no operand");
        for (int k = ellipsis_axes_; k > 0; --k) t_.out.push_back(LabelOf(EllipsisName(k)));
        continue;
      }
      const auto it = std::find(t_.names.begin(), t_.names.end(), word.name);
      if (it == t_.names.end()) {
        return Bad(word.at, absl::StrCat("axis '", word.name, "' of the result is in no operand"));
      }
      const int label = static_cast<int>(it - t_.names.begin());
      if (std::find(t_.out.begin(), t_.out.end(), label) != t_.out.end()) {
        return Bad(word.at, absl::StrCat("axis '", word.name, "' stands twice in the result"));
      }
      t_.out.push_back(label);
    }
    std::vector<int64_t> dims;
    for (int label : t_.out) dims.push_back(t_.sizes[label]);
    if (const absl::StatusOr<Shape> shape = Shape::Make(dims); !shape.ok()) {
      return Bad(out.at, absl::StrCat("the result is no shape: ", shape.status().message()));
    }
    return absl::OkStatus();
  }

  void MarkBroadcast() {
    for (size_t i = 0; i < t_.operands.size(); ++i) {
      std::vector<bool>& marks = t_.broadcast.emplace_back();
      for (size_t k = 0; k < t_.operands[i].size(); ++k) {
        marks.push_back(specs_[i].shape[static_cast<int>(k)] != t_.sizes[t_.operands[i][k]]);
      }
    }
  }

  const absl::string_view pattern_;
  const absl::Span<const TensorSpec> specs_;
  bool classic_ = false;
  int ellipsis_axes_ = 0;  // the most that "..." stands for
  EinsumTerms t_;
  std::vector<int> from_;  // by label: the operand that its size is from
};

}  // namespace

LabelSet EinsumTerms::out_set() const {
  LabelSet set = 0;
  for (int label : out) set |= Only(label);
  return set;
}

LabelSet EinsumTerms::SetOf(int operand) const {
  LabelSet set = 0;
  for (size_t k = 0; k < operands[operand].size(); ++k) {
    if (!broadcast[operand][k]) set |= Only(operands[operand][k]);
  }
  return set;
}

absl::StatusOr<EinsumTerms> ReadEinsum(absl::string_view pattern,
                                       absl::Span<const TensorSpec> operands) {
  return TermReader(pattern, operands).Read();
}

}  // namespace tally::einops
