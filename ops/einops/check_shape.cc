#include "tally/ops/einops/check_shape.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/defined.h"
#include "tally/ops/einops/pattern.h"
#include "tally/ops/recorder.h"

namespace tally {
namespace einops {
namespace {

constexpr absl::string_view kOp = "check_shape";

enum class WordKind : uint8_t { kName, kAny, kEllipsis, kSequence, kProduct, kExpression };

struct Word {
  WordKind kind = WordKind::kName;
  Extent at;
};

class Checker {
 public:
  Checker(const Tensor& x, absl::string_view pattern, const AxisSizes& bound)
      : x_(x), pattern_(pattern), sizes_(bound) {}

  absl::Status Check() {
    TALLY_RETURN_IF_ERROR(ReadWords());
    TALLY_RETURN_IF_ERROR(PlaceWords());
    for (bool computed : {false, true}) {
      for (size_t i = 0; i < words_.size(); ++i) {
        const WordKind kind = words_[i].kind;
        const bool later = kind == WordKind::kProduct || kind == WordKind::kExpression;
        if (later == computed) TALLY_RETURN_IF_ERROR(CheckWord(i));
      }
    }
    return absl::OkStatus();
  }

  const AxisSizes& sizes() const { return sizes_; }

  // One word for each axis.
  std::string AxisNames() const {
    std::string names;
    for (size_t i = 0; i < words_.size(); ++i) {
      const int count = AxesOf(i);
      const std::string name = NameOf(words_[i]);
      for (int k = 0; k < count; ++k) absl::StrAppend(&names, names.empty() ? "" : " ", name);
    }
    return names;
  }

 private:
  absl::string_view Text(Extent at) const { return pattern_.substr(at.begin, at.end - at.begin); }

  absl::Status Bad(Extent at, const std::string& message) const {
    return PatternError(kOp, pattern_, at, absl::StrCat(message, ": x is ", x_.spec().ToString()));
  }

  std::string NameOf(const Word& word) const {
    if (word.kind == WordKind::kEllipsis) return "_";
    if (word.kind == WordKind::kProduct) return WithStars(word.at);
    return std::string(Text(word.at));
  }

  // "(h d)" as "h*d"; "()" as "1".
  std::string WithStars(Extent at) const {
    std::string text;
    for (int i = at.begin + 1; i < at.end - 1; ++i) {
      if (!IsSpace(pattern_[i])) {
        text += pattern_[i];
      } else if (!text.empty() && text.back() != '*') {
        text += '*';
      }
    }
    if (!text.empty() && text.back() == '*') text.pop_back();
    return text.empty() ? "1" : text;
  }

  absl::Status ReadWords() {
    if (pattern_.size() > 1 << 20) return Bad({0, 1}, "a pattern of more than 2^20 bytes");
    const int size = static_cast<int>(pattern_.size());
    for (int at = 0; at < size;) {
      if (IsSpace(pattern_[at])) {
        ++at;
        continue;
      }
      Word word;
      word.at.begin = at;
      if (pattern_[at] == '(') {
        const size_t close = pattern_.find(')', at);
        if (close == absl::string_view::npos) return Bad({at, at + 1}, "'(' without ')'");
        at = static_cast<int>(close) + 1;
        if (at < size && !IsSpace(pattern_[at])) {
          return Bad({at, at + 1}, "words are separated by spaces");
        }
      } else {
        while (at < size && !IsSpace(pattern_[at])) ++at;
      }
      word.at.end = at;
      TALLY_RETURN_IF_ERROR(Classify(&word));
      words_.push_back(word);
    }
    return absl::OkStatus();
  }

  absl::Status Classify(Word* word) const {
    const absl::string_view text = Text(word->at);
    const int begin = word->at.begin, end = word->at.end;
    if (text == "...") {
      word->kind = WordKind::kEllipsis;
    } else if (text == "_") {
      word->kind = WordKind::kAny;
    } else if (text[0] == '(') {
      word->kind = WordKind::kProduct;
    } else if (text[0] == '*') {
      word->kind = WordKind::kSequence;
      if (text.size() == 1 || !IsLetter(text[1]) || EndOfName(pattern_, begin + 1, end) != end) {
        return Bad(word->at, "'*' wants one name behind it");
      }
    } else if (IsLetter(text[0]) && EndOfName(pattern_, begin, end) == end) {
      word->kind = WordKind::kName;
    } else if (IsLetter(text[0]) || IsDigit(text[0])) {
      word->kind = WordKind::kExpression;
    } else {
      return Bad({begin, begin + 1},
                 "a word is a name, a number, '_', '...', '*name', '(h d)' or "
                 "an expression like h*d");
    }
    return absl::OkStatus();
  }

  // Which axes the words stand for.
  absl::Status PlaceWords() {
    int many = -1;
    for (size_t i = 0; i < words_.size(); ++i) {
      if (words_[i].kind != WordKind::kEllipsis && words_[i].kind != WordKind::kSequence) continue;
      if (many >= 0) return Bad(words_[i].at, "a second word for any number of axes");
      many = static_cast<int>(i);
    }
    const int words = static_cast<int>(words_.size()) - (many >= 0);
    if (many >= 0 ? words > x_.rank() : words != x_.rank()) {
      return Bad({0, static_cast<int>(pattern_.size())},
                 absl::StrCat("the pattern has ", many >= 0 ? "at least " : "", words,
                              words == 1 ? " axis" : " axes", ", x has ", x_.rank()));
    }
    many_ = many;
    return absl::OkStatus();
  }

  int AxesOf(size_t word) const {
    if (static_cast<int>(word) != many_) return 1;
    return x_.rank() - (static_cast<int>(words_.size()) - 1);
  }
  int AxisOf(size_t word) const {
    const int at = static_cast<int>(word);
    return many_ >= 0 && at > many_ ? at - 1 + AxesOf(many_) : at;
  }

  absl::Status Differs(size_t i, Extent at, int64_t expected, const std::string& why) const {
    const int axis = AxisOf(i);
    return Bad(at, absl::StrCat("axis ", axis, " '", Text(words_[i].at), "' is ", x_.dim(axis),
                                ", expected ", expected, why));
  }

  absl::Status CheckWord(size_t i) {
    const Word& word = words_[i];
    const int axis = AxisOf(i);
    switch (word.kind) {
      case WordKind::kAny:
      case WordKind::kEllipsis:
        return absl::OkStatus();
      case WordKind::kName:
        return CheckName(i);
      case WordKind::kSequence:
        return CheckSequence(i);
      case WordKind::kProduct:
        return CheckProduct(i);
      case WordKind::kExpression:
        break;
    }
    int at = word.at.begin;
    int64_t value = 0;
    TALLY_RETURN_IF_ERROR(ReadSum(word.at.end, &at, &value));
    if (value == x_.dim(axis)) return absl::OkStatus();
    const bool number =
        IsDigit(pattern_[word.at.begin]) &&
        std::all_of(pattern_.begin() + word.at.begin, pattern_.begin() + word.at.end, IsDigit);
    return Differs(i, word.at, value, number ? "" : Known());
  }

  std::string Known() const {
    return sizes_.empty() ? "" : absl::StrCat(" with ", sizes_.ToString());
  }

  absl::Status CheckName(size_t i) {
    const absl::string_view name = Text(words_[i].at);
    const int64_t dim = x_.dim(AxisOf(i));
    const int64_t* const bound = sizes_.Find(name);
    if (bound == nullptr) {
      sizes_.Set(name, dim);
    } else if (*bound != dim) {
      return Differs(i, words_[i].at, *bound, " as it was before");
    }
    return absl::OkStatus();
  }

  absl::Status CheckSequence(size_t i) {
    const Word& word = words_[i];
    const absl::string_view name = Text({word.at.begin + 1, word.at.end});
    const Shape dims(x_.shape().dims().subspan(AxisOf(i), AxesOf(i)));
    const Shape* const bound = sizes_.FindSequence(name);
    if (bound == nullptr) {
      sizes_.SetSequence(name, dims);
    } else if (*bound != dims) {
      return Bad(word.at, absl::StrCat("axes '", Text(word.at), "' are ", dims.ToString(),
                                       ", expected ", bound->ToString(), " as they were before"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckProduct(size_t i) {
    const Word& word = words_[i];
    const int64_t dim = x_.dim(AxisOf(i));
    int64_t known = 1;
    Extent unknown;
    for (int at = word.at.begin + 1; at < word.at.end - 1;) {
      if (IsSpace(pattern_[at])) {
        ++at;
        continue;
      }
      const int begin = at;
      int64_t factor = 1;
      if (IsLetter(pattern_[at])) {
        at = EndOfName(pattern_, at, word.at.end - 1);
        const Extent name{begin, at};
        if (const int64_t* size = sizes_.Find(Text(name))) {
          factor = *size;
        } else if (unknown.end > 0) {
          return Bad(name,
                     absl::StrCat("neither '", Text(unknown), "' nor '", Text(name), "' is bound"));
        } else {
          unknown = name;
        }
      } else if (!IsDigit(pattern_[at])) {
        return Bad({at, at + 1}, "in parentheses stand names and numbers");
      } else if (!ReadNumber(pattern_, word.at.end - 1, &at, &factor)) {
        return Bad({begin, at}, "a size above 2^63-1");
      }
      if (__builtin_mul_overflow(known, factor, &known)) {
        return Bad(word.at, "the sizes multiply past 2^63-1");
      }
    }
    if (unknown.end == 0) {
      return known == dim ? absl::OkStatus() : Differs(i, word.at, known, Known());
    }
    if (known == 0 || dim % known != 0) {
      return Bad(word.at, absl::StrCat("axis ", AxisOf(i), " '", Text(word.at), "' is ", dim,
                                       ", expected a multiple of ", known, Known()));
    }
    sizes_.Set(Text(unknown), dim / known);
    return absl::OkStatus();
  }

  // sum = product (("+" | "-") product)*
  absl::Status ReadSum(int end, int* at, int64_t* value) const {
    TALLY_RETURN_IF_ERROR(ReadFactors(end, at, value));
    while (*at < end && (pattern_[*at] == '+' || pattern_[*at] == '-')) {
      const bool minus = pattern_[(*at)++] == '-';
      int64_t term = 0;
      TALLY_RETURN_IF_ERROR(ReadFactors(end, at, &term));
      if (minus ? __builtin_sub_overflow(*value, term, value)
                : __builtin_add_overflow(*value, term, value)) {
        return Bad({*at - 1, *at}, "the expression passes 2^63-1");
      }
    }
    if (*at < end) return Bad({*at, *at + 1}, "wanted +, - or *");
    return absl::OkStatus();
  }

  // product = factor ("*" factor)*
  absl::Status ReadFactors(int end, int* at, int64_t* value) const {
    TALLY_RETURN_IF_ERROR(ReadFactor(end, at, value));
    while (*at < end && pattern_[*at] == '*') {
      ++*at;
      int64_t factor = 0;
      TALLY_RETURN_IF_ERROR(ReadFactor(end, at, &factor));
      if (__builtin_mul_overflow(*value, factor, value)) {
        return Bad({*at - 1, *at}, "the expression passes 2^63-1");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadFactor(int end, int* at, int64_t* value) const {
    const int begin = *at;
    if (begin < end && IsLetter(pattern_[begin])) {
      *at = EndOfName(pattern_, begin, end);
      const int64_t* const size = sizes_.Find(Text({begin, *at}));
      if (size == nullptr) {
        return Bad({begin, *at}, absl::StrCat("'", Text({begin, *at}), "' is not bound"));
      }
      *value = *size;
      return absl::OkStatus();
    }
    if (begin < end && IsDigit(pattern_[begin])) {
      if (ReadNumber(pattern_, end, at, value)) return absl::OkStatus();
      return Bad({begin, *at}, "a size above 2^63-1");
    }
    return Bad({begin, begin + 1}, "wanted a name or a number");
  }

  const Tensor& x_;
  const absl::string_view pattern_;
  AxisSizes sizes_;
  std::vector<Word> words_;
  int many_ = -1;  // the word for any number of axes
};

}  // namespace
}  // namespace einops

void CheckShape(const Tensor& x, absl::string_view pattern, AxisSizes* dims) {
  RequireDefined("check_shape", {x});
  einops::Checker checker(x, pattern, dims == nullptr ? AxisSizes() : *dims);
  ThrowIfError(checker.Check());
  if (dims != nullptr) *dims = checker.sizes();
  if (CurrentContext().recorder != nullptr && x.rank() > 0) NameAxes(x, checker.AxisNames());
}

}  // namespace tally
