// JSON values, a parser for hostile text and a deterministic writer.
//
// Integers are exact: a JSON integer up to 2^63-1, beyond that a decimal string, in both
// directions.
#ifndef TALLY_IO_JSON_H_
#define TALLY_IO_JSON_H_

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tally {

class Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // in order of insertion

// One JSON value, 16 bytes and what it owns.
class Json {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInteger, kDouble, kString, kArray, kObject };

  Json() : integer_(0) {}
  Json(std::nullptr_t) : Json() {}
  Json(bool value) : kind_(Kind::kBool), bool_(value) {}
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  Json(T value) : Json(absl::int128(value)) {}
  Json(absl::int128 value);  // a decimal string when it does not fit 64 bits
  Json(double value);        // null when it is not finite: JSON has no NaN
  Json(std::string value);
  Json(absl::string_view value) : Json(std::string(value)) {}
  Json(const char* value) : Json(std::string(value)) {}
  static Json Array(JsonArray elements = {});
  static Json Object(JsonObject members = {});

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  const char* KindName() const;  // "an object", "a string": for messages

  // Each wants its own kind.
  bool boolean() const;
  int64_t integer() const;
  double number() const;  // kInteger or kDouble
  const std::string& string() const;
  const JsonArray& array() const;
  JsonArray& array();
  const JsonObject& object() const;
  JsonObject& object();

  // A kInteger, or a string of decimal digits as the writer makes it. False for anything else.
  bool ToCount(absl::int128* value) const;
  // The member of an object, or null when there is none or this is no object.
  const Json* Find(absl::string_view key) const;
  // Builders. Set replaces a member of that name and keeps its place.
  Json& Set(absl::string_view key, Json value);
  Json& Add(absl::string_view key, Json value);  // for keys that are known to be new
  Json& Append(Json value);

  // Containers in the first `lines` levels have one line per element; deeper ones stand on one
  // line. 0: everything on one line, without spaces. Bytes that are no UTF-8 become U+FFFD;
  // controls and directional marks are escaped.
  std::string Dump(int lines = 0) const;

  friend bool operator==(const Json& a, const Json& b);
  friend bool operator!=(const Json& a, const Json& b) { return !(a == b); }

 private:
  void DumpTo(int level, int lines, std::string& out) const;

  Kind kind_ = Kind::kNull;
  union {
    bool bool_;
    int64_t integer_;
    double double_;
    std::string* string_;
    JsonArray* array_;
    JsonObject* object_;
  };
};

struct JsonLimits {
  int64_t bytes = 100'000'000;
  int64_t values = int64_t{1} << 25;
  int depth = 64;
};

// Parses exactly one JSON value. Errors say "line L, column C: ...": kInvalidArgument for text that
// is no JSON, invalid UTF-8, a duplicate key or a number outside double; kResourceExhausted beyond
// the limits. Never throws, never recurses by the text's depth.
absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

// The text as a JSON string with its quotes.
std::string JsonString(absl::string_view text);

}  // namespace tally

#endif  // TALLY_IO_JSON_H_
