#include "tally/io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_format.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

std::string Decimal(absl::int128 value) {
  const bool negative = value < 0;
  absl::uint128 rest = negative ? -absl::uint128(value) : absl::uint128(value);
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
    rest /= 10;
  } while (rest != 0);
  return negative ? "-" + digits : digits;
}

// Shortest text that reads back to the same bits, and reads back as a double.
void AppendDouble(double value, std::string& out) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  const absl::string_view text(buffer, end - buffer);
  out.append(buffer, end - buffer);
  if (text.find_first_of(".e") == absl::string_view::npos) out += ".0";
}

void AppendJsonString(absl::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    text.remove_prefix(c.length);
    if (c.point == '"' || c.point == '\\') {
      out += '\\';
      out += static_cast<char>(c.point);
    } else if (c.point == '\n') {
      out += "\\n";
    } else if (c.point == '\t') {
      out += "\\t";
    } else if (IsUnsafeCodePoint(c.point)) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c.point));
    } else {
      AppendUtf8(c.point, out);
    }
  }
  out += '"';
}

}  // namespace

Json::Json(absl::int128 value) : integer_(0) {
  if (value >= std::numeric_limits<int64_t>::min() &&
      value <= std::numeric_limits<int64_t>::max()) {
    kind_ = Kind::kInteger;
    integer_ = static_cast<int64_t>(value);
  } else {
    string_ = new std::string(Decimal(value));
    kind_ = Kind::kString;
  }
}

Json::Json(double value) : integer_(0) {
  if (!std::isfinite(value)) return;
  kind_ = Kind::kDouble;
  double_ = value;
}

Json::Json(std::string value) : string_(new std::string(std::move(value))) {
  kind_ = Kind::kString;
}

Json Json::Array(JsonArray elements) {
  Json json;
  json.array_ = new JsonArray(std::move(elements));
  json.kind_ = Kind::kArray;
  return json;
}

Json Json::Object(JsonObject members) {
  Json json;
  json.object_ = new JsonObject(std::move(members));
  json.kind_ = Kind::kObject;
  return json;
}

Json::Json(const Json& other) : integer_(0) {
  switch (other.kind_) {
    case Kind::kString:
      string_ = new std::string(*other.string_);
      break;
    case Kind::kArray:
      array_ = new JsonArray(*other.array_);
      break;
    case Kind::kObject:
      object_ = new JsonObject(*other.object_);
      break;
    case Kind::kBool:
      bool_ = other.bool_;
      break;
    case Kind::kDouble:
      double_ = other.double_;
      break;
    case Kind::kInteger:
      integer_ = other.integer_;
      break;
    case Kind::kNull:
      break;
  }
  kind_ = other.kind_;
}

Json::Json(Json&& other) noexcept : kind_(other.kind_), integer_(0) {
  // The widest member carries the bytes of each.
  static_assert(sizeof(Json) == 16 && sizeof(integer_) == sizeof(array_));
  std::memcpy(&integer_, &other.integer_, sizeof(integer_));
  other.kind_ = Kind::kNull;
}

Json& Json::operator=(Json other) noexcept {
  std::swap(kind_, other.kind_);
  int64_t mine;
  std::memcpy(&mine, &integer_, sizeof(mine));
  std::memcpy(&integer_, &other.integer_, sizeof(mine));
  std::memcpy(&other.integer_, &mine, sizeof(mine));
  return *this;
}

Json::~Json() {
  if (kind_ == Kind::kString) delete string_;
  if (kind_ == Kind::kArray) delete array_;
  if (kind_ == Kind::kObject) delete object_;
}

const char* Json::KindName() const {
  switch (kind_) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a bool";
    case Kind::kInteger:
      return "an integer";
    case Kind::kDouble:
      return "a fraction";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "an array";
    case Kind::kObject:
      return "an object";
  }
  return "nothing";
}

bool Json::boolean() const {
  TALLY_CHECK(kind_ == Kind::kBool);
  return bool_;
}
int64_t Json::integer() const {
  TALLY_CHECK(kind_ == Kind::kInteger);
  return integer_;
}
double Json::number() const {
  if (kind_ == Kind::kInteger) return static_cast<double>(integer_);
  TALLY_CHECK(kind_ == Kind::kDouble);
  return double_;
}
const std::string& Json::string() const {
  TALLY_CHECK(kind_ == Kind::kString);
  return *string_;
}
const JsonArray& Json::array() const {
  TALLY_CHECK(kind_ == Kind::kArray);
  return *array_;
}
JsonArray& Json::array() {
  TALLY_CHECK(kind_ == Kind::kArray);
  return *array_;
}
const JsonObject& Json::object() const {
  TALLY_CHECK(kind_ == Kind::kObject);
  return *object_;
}
JsonObject& Json::object() {
  TALLY_CHECK(kind_ == Kind::kObject);
  return *object_;
}

bool Json::ToCount(absl::int128* value) const {
  if (kind_ == Kind::kInteger) {
    *value = integer_;
    return true;
  }
  if (kind_ != Kind::kString) return false;
  absl::string_view digits = *string_;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (negative) digits.remove_prefix(1);
  // 38 digits always fit 127 bits.
  if (digits.empty() || digits.size() > 38 || (digits[0] == '0' && digits.size() > 1)) return false;
  absl::int128 total = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return false;
    total = total * 10 + (c - '0');
  }
  *value = negative ? -total : total;
  return true;
}

const Json* Json::Find(absl::string_view key) const {
  if (kind_ != Kind::kObject) return nullptr;
  for (const auto& [name, value] : *object_) {
    if (name == key) return &value;
  }
  return nullptr;
}

Json& Json::Set(absl::string_view key, Json value) {
  for (auto& [name, old] : object()) {
    if (name == key) {
      old = std::move(value);
      return *this;
    }
  }
  return Add(key, std::move(value));
}

Json& Json::Add(absl::string_view key, Json value) {
  object().emplace_back(std::string(key), std::move(value));
  return *this;
}

Json& Json::Append(Json value) {
  array().push_back(std::move(value));
  return *this;
}

void Json::DumpTo(int level, int lines, std::string& out) const {
  const bool list =
      kind_ == Kind::kArray && std::none_of(array_->begin(), array_->end(), [](const Json& e) {
        return e.kind_ == Kind::kArray || e.kind_ == Kind::kObject;
      });
  const bool split = level < lines && !list;
  const auto between = [&](size_t i, size_t count) {
    if (i > 0 && i < count) out += ',';
    if (!split) {
      if (lines > 0 && i > 0 && i < count) out += ' ';
      return;
    }
    out += '\n';
    out.append(2 * (i < count ? level + 1 : level), ' ');
  };
  switch (kind_) {
    case Kind::kNull:
      out += "null";
      break;
    case Kind::kBool:
      out += bool_ ? "true" : "false";
      break;
    case Kind::kInteger:
      absl::StrAppend(&out, integer_);
      break;
    case Kind::kDouble:
      AppendDouble(double_, out);
      break;
    case Kind::kString:
      AppendJsonString(*string_, out);
      break;
    case Kind::kArray: {
      const JsonArray& a = *array_;
      out += '[';
      for (size_t i = 0; i < a.size(); ++i) {
        between(i, a.size());
        a[i].DumpTo(level + 1, lines, out);
      }
      if (!a.empty()) between(a.size(), a.size());
      out += ']';
      break;
    }
    case Kind::kObject: {
      const JsonObject& o = *object_;
      out += '{';
      for (size_t i = 0; i < o.size(); ++i) {
        between(i, o.size());
        AppendJsonString(o[i].first, out);
        out += lines > 0 ? ": " : ":";
        o[i].second.DumpTo(level + 1, lines, out);
      }
      if (!o.empty()) between(o.size(), o.size());
      out += '}';
      break;
    }
  }
}

std::string Json::Dump(int lines) const {
  std::string out;
  DumpTo(0, lines, out);
  return out;
}

bool operator==(const Json& a, const Json& b) {
  if (a.kind_ != b.kind_) return false;
  switch (a.kind_) {
    case Json::Kind::kNull:
      return true;
    case Json::Kind::kBool:
      return a.bool_ == b.bool_;
    case Json::Kind::kInteger:
      return a.integer_ == b.integer_;
    case Json::Kind::kDouble:
      return a.double_ == b.double_;
    case Json::Kind::kString:
      return *a.string_ == *b.string_;
    case Json::Kind::kArray:
      return *a.array_ == *b.array_;
    case Json::Kind::kObject:
      return *a.object_ == *b.object_;
  }
  return false;
}

std::string JsonString(absl::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

}  // namespace tally
