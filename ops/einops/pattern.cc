#include "tally/ops/einops/pattern.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tally::einops {
namespace {

// Of a pattern shown in a message.
constexpr int kShown = 160;

class SideParser {
 public:
  SideParser(absl::string_view op, absl::string_view pattern, Extent at)
      : op_(op), pattern_(pattern), at_(at.begin), end_(at.end) {
    side_.at = at;
  }

  absl::StatusOr<Side> Parse() {
    while (at_ < end_) {
      const char c = pattern_[at_];
      absl::Status status;
      if (IsSpace(c)) {
        ++at_;
      } else if (c == '(') {
        status = Open();
      } else if (c == ')') {
        status = Close();
      } else {
        status = ReadItem();
      }
      if (!status.ok()) return status;
    }
    if (open_) return Bad(group_.at, "'(' without ')'");
    FindEllipsis();
    return std::move(side_);
  }

 private:
  absl::Status Bad(Extent at, absl::string_view message) const {
    return PatternError(op_, pattern_, at, message);
  }

  absl::Status Open() {
    if (open_) return Bad({at_, at_ + 1}, "parentheses inside parentheses");
    open_ = true;
    group_ = {.items = {}, .parenthesised = true, .at = {at_, at_ + 1}};
    ++at_;
    return absl::OkStatus();
  }

  absl::Status Close() {
    if (!open_) return Bad({at_, at_ + 1}, "')' without '('");
    open_ = false;
    group_.at.end = ++at_;
    side_.groups.push_back(std::move(group_));
    return absl::OkStatus();
  }

  absl::Status ReadItem() {
    const int begin = at_;
    const char c = pattern_[at_];
    Item item;
    if (IsLetter(c)) {
      at_ = EndOfName(pattern_, at_, end_);
      if (pattern_[at_ - 1] == '_') {
        return Bad({begin, at_}, "a name does not end with an underscore");
      }
    } else if (IsDigit(c)) {
      item.kind = ItemKind::kNumber;
      if (!ReadNumber(pattern_, end_, &at_, &item.number)) {
        return Bad({begin, at_}, "a size above 2^63-1");
      }
      if (at_ < end_ && (IsLetter(pattern_[at_]) || pattern_[at_] == '_')) {
        return Bad({begin, EndOfName(pattern_, at_, end_)}, "a name begins with a letter");
      }
      if (item.number < 1) return Bad({begin, at_}, "an axis given by its size is 1 or more");
    } else if (pattern_.substr(at_, std::min(3, end_ - at_)) == "...") {
      item.kind = ItemKind::kEllipsis;
      at_ += 3;
      if (ellipsis_) return Bad({begin, at_}, "a second '...' on one side");
      ellipsis_ = true;
    } else {
      return Bad({begin, begin + 1}, Unexpected(c));
    }
    item.at = {begin, at_};
    item.text = pattern_.substr(begin, at_ - begin);
    Add(std::move(item));
    return absl::OkStatus();
  }

  static std::string Unexpected(char c) {
    if (c == '.') return "'.' outside '...'";
    if (c == '_') return "a name begins with a letter";
    if (c == ',') return "',' separates the operands of einsum only";
    if (c > ' ' && c < 127) return absl::StrCat("'", std::string(1, c), "' means nothing here");
    return "a sign that means nothing here";
  }

  void Add(Item item) {
    const bool unit = item.kind == ItemKind::kNumber && item.number == 1;
    if (open_) {
      if (!unit) group_.items.push_back(std::move(item));
      return;
    }
    Group group{.items = {}, .parenthesised = false, .at = item.at};
    if (!unit) group.items.push_back(std::move(item));
    side_.groups.push_back(std::move(group));
  }

  void FindEllipsis() {
    for (const Group& group : side_.groups) {
      for (const Item& item : group.items) {
        if (item.kind != ItemKind::kEllipsis) continue;
        side_.ellipsis = &item;
        side_.ellipsis_in_group = group.parenthesised;
      }
    }
  }

  absl::string_view op_;
  absl::string_view pattern_;
  int at_;
  int end_;
  Side side_;
  Group group_;
  bool open_ = false;
  bool ellipsis_ = false;
};

}  // namespace

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int EndOfName(absl::string_view pattern, int begin, int end) {
  int at = begin;
  while (at < end && (IsLetter(pattern[at]) || IsDigit(pattern[at]) || pattern[at] == '_')) ++at;
  return at;
}

bool ReadNumber(absl::string_view pattern, int end, int* at, int64_t* number) {
  *number = 0;
  bool fits = true;
  for (; *at < end && IsDigit(pattern[*at]); ++*at) {
    fits = fits && !__builtin_mul_overflow(*number, int64_t{10}, number) &&
           !__builtin_add_overflow(*number, int64_t{pattern[*at] - '0'}, number);
  }
  return fits;
}

absl::Status PatternError(absl::string_view op, absl::string_view pattern, Extent at,
                          absl::string_view message) {
  const int size = static_cast<int>(pattern.size());
  at.begin = std::clamp(at.begin, 0, size);
  at.end = std::clamp(at.end, at.begin, size);
  // Of a very long pattern, the part around the place.
  const int first = std::clamp(at.begin - kShown / 2, 0, std::max(size - kShown, 0));
  const int last = std::min(size, first + kShown);
  std::string line;
  for (int i = first; i < last; ++i) {
    const char c = pattern[i];
    line += IsSpace(c) ? ' ' : (c > ' ' && c < 127) ? c : '?';
  }
  const int carets = std::max(1, std::min(at.end, last) - at.begin);
  return absl::InvalidArgumentError(absl::StrCat(op, ": ", message, "\n  ", line, "\n  ",
                                                 std::string(at.begin - first, ' '),
                                                 std::string(carets, '^')));
}

absl::StatusOr<Extent> FindArrow(absl::string_view op, absl::string_view pattern) {
  const int size = static_cast<int>(std::min<size_t>(pattern.size(), 1 << 20));
  if (pattern.size() > static_cast<size_t>(size)) {
    return PatternError(op, pattern.substr(0, size), {0, 1}, "a pattern of more than 2^20 bytes");
  }
  const size_t at = pattern.find("->");
  if (at == absl::string_view::npos) {
    return PatternError(op, pattern, {size, size}, "the pattern has no '->'");
  }
  const Extent arrow{static_cast<int>(at), static_cast<int>(at) + 2};
  const size_t second = pattern.find("->", at + 2);
  if (second != absl::string_view::npos) {
    const int begin = static_cast<int>(second);
    return PatternError(op, pattern, {begin, begin + 2}, "a second '->'");
  }
  return arrow;
}

absl::StatusOr<Side> ParseSide(absl::string_view op, absl::string_view pattern, Extent at) {
  return SideParser(op, pattern, at).Parse();
}

}  // namespace tally::einops
