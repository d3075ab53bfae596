#include "tally/io/text_cursor.h"

#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "tally/io/json.h"

namespace tally {
namespace {

bool IsWordChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' ||
         c == '-';
}

// Length of the JSON string at the front, quotes included; 0 when it does not end.
size_t StringLength(absl::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return 0;
}

}  // namespace

void TextCursor::SkipSpaces() {
  while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) {
    rest_.remove_prefix(1);
  }
}

bool TextCursor::Eat(absl::string_view literal) {
  SkipSpaces();
  return absl::ConsumePrefix(&rest_, literal);
}

bool TextCursor::EatWord(absl::string_view word) {
  SkipSpaces();
  if (!absl::StartsWith(rest_, word)) return false;
  if (rest_.size() > word.size() && IsWordChar(rest_[word.size()])) return false;
  rest_.remove_prefix(word.size());
  return true;
}

bool TextCursor::Word(std::string* word) {
  SkipSpaces();
  size_t n = 0;
  while (n < rest_.size() && IsWordChar(rest_[n])) ++n;
  if (n == 0) return false;
  *word = std::string(rest_.substr(0, n));
  rest_.remove_prefix(n);
  return true;
}

bool TextCursor::Token(std::string* token) {
  SkipSpaces();
  if (rest_.empty()) return false;
  const size_t n = std::min(rest_.size(), rest_.find_first_of(" \t\r"));
  *token = std::string(rest_.substr(0, n));
  rest_.remove_prefix(n);
  return true;
}

bool TextCursor::Unsigned(uint64_t* value) {
  SkipSpaces();
  size_t n = 0;
  while (n < rest_.size() && absl::ascii_isdigit(static_cast<unsigned char>(rest_[n]))) ++n;
  if (n == 0 || !absl::SimpleAtoi(rest_.substr(0, n), value)) return false;
  rest_.remove_prefix(n);
  return true;
}

bool TextCursor::Integer(int64_t low, int64_t high, int64_t* value) {
  const absl::string_view before = rest_;
  uint64_t read = 0;
  if (!Unsigned(&read)) return false;
  if (read > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
      static_cast<int64_t>(read) < low || static_cast<int64_t>(read) > high) {
    rest_ = before;
    return false;
  }
  *value = static_cast<int64_t>(read);
  return true;
}

bool TextCursor::Id(int32_t* id) {
  const absl::string_view before = rest_;
  int64_t value = 0;
  if (!Eat("%") || rest_.empty() || rest_[0] == ' ' ||
      !Integer(0, std::numeric_limits<int32_t>::max() - 1, &value)) {
    rest_ = before;
    return false;
  }
  *id = static_cast<int32_t>(value);
  return true;
}

bool TextCursor::JsonText(std::string* value) {
  SkipSpaces();
  if (rest_.empty() || rest_[0] != '"') return false;
  const size_t length = StringLength(rest_);
  if (length == 0) return false;
  absl::StatusOr<Json> json = ParseJson(rest_.substr(0, length));
  if (!json.ok() || !json->is(Json::Kind::kString)) return false;
  *value = json->string();
  rest_.remove_prefix(length);
  return true;
}

bool TextCursor::JsonObjectText(std::string* text) {
  SkipSpaces();
  if (rest_.empty() || rest_[0] != '{') return false;
  int64_t depth = 0;
  for (size_t i = 0; i < rest_.size(); ++i) {
    if (rest_[i] == '"') {
      const size_t length = StringLength(rest_.substr(i));
      if (length == 0) return false;
      i += length - 1;
    } else if (rest_[i] == '{') {
      ++depth;
    } else if (rest_[i] == '}' && --depth == 0) {
      absl::StatusOr<Json> json = ParseJson(rest_.substr(0, i + 1));
      if (!json.ok()) return false;
      *text = json->Dump();
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

bool TextCursor::Spec(TensorSpec* spec) {
  const absl::string_view before = rest_;
  std::string name;
  std::vector<int64_t> dims;
  const auto read = [&] {
    if (!Word(&name)) return false;
    const std::optional<DType> dtype = DTypeFromName(name);
    if (!dtype.has_value() || !Eat("[")) return false;
    spec->dtype = *dtype;
    while (!Eat("]")) {
      int64_t dim = 0;
      if (dims.size() == kMaxRank || (!dims.empty() && !Eat(",")) ||
          !Integer(0, std::numeric_limits<int64_t>::max(), &dim)) {
        return false;
      }
      dims.push_back(dim);
    }
    absl::StatusOr<Shape> shape = Shape::Make(dims);
    if (!shape.ok()) return false;
    spec->shape = *shape;
    return CheckedBytes(*spec).ok();
  };
  if (read()) return true;
  rest_ = before;
  return false;
}

}  // namespace tally
