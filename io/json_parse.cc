// ParseJson: nlohmann's SAX parser, which keeps its state in a vector instead of the stack, feeding
// our values. The only file that includes nlohmann.
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "tally/io/json.h"
#include "tally/io/text.h"

namespace tally {
namespace {

// Walks the text and tells how far the parser has read.
class TrackedChars {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackedChars(const char* at, const char** read) : at_(at), read_(read) {}
  const char& operator*() const { return *at_; }
  TrackedChars& operator++() {
    *read_ = ++at_;
    return *this;
  }
  TrackedChars operator++(int) {
    TrackedChars before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TrackedChars& o) const { return at_ == o.at_; }
  bool operator!=(const TrackedChars& o) const { return at_ != o.at_; }

 private:
  const char* at_;
  const char** read_;
};

class Builder {
 public:
  Builder(absl::string_view text, const JsonLimits& limits, const char* const* read)
      : text_(text), limits_(limits), read_(read) {}

  bool null() { return Put(Json()); }
  bool boolean(bool value) { return Put(Json(value)); }
  bool number_integer(int64_t value) { return Put(Json(value)); }
  bool number_unsigned(uint64_t value) {
    // Integers beyond 2^63-1 travel as strings; written bare they are only approximate.
    return value > static_cast<uint64_t>(INT64_MAX) ? Put(Json(static_cast<double>(value)))
                                                    : Put(Json(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) { return Put(Json(value)); }
  bool string(std::string& value) { return Put(Json(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return Fail("binary data"); }
  bool start_object(size_t) { return Open(Json::Object()); }
  bool start_array(size_t) { return Open(Json::Array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    Level& level = *levels_.back();
    JsonObject& members = level.json.object();
    bool known = false;
    if (members.size() < kHashFrom) {
      known = level.json.Find(name) != nullptr;
    } else {
      if (level.keys.empty()) {
        for (const auto& member : members) level.keys.insert(member.first);
      }
      known = !level.keys.insert(name).second;
    }
    if (known) return Fail(absl::StrCat("duplicate key ", Quoted(name)));
    level.json.Add(name, Json());
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: WHAT": keep WHAT.
    absl::string_view what = error.what();
    for (absl::string_view marker : {absl::string_view("] "), absl::string_view("column ")}) {
      const size_t at = what.find(marker);
      if (at != absl::string_view::npos) what.remove_prefix(at + marker.size());
    }
    if (const size_t at = what.find(": "); at != absl::string_view::npos && at < 12) {
      what.remove_prefix(at + 2);
    }
    return Fail(SanitizeForTerminal(what.substr(0, 200)));
  }

  bool Fail(absl::string_view message, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    if (status_.ok()) status_ = absl::Status(code, absl::StrCat(Where(), ": ", message));
    return false;
  }
  const absl::Status& status() const { return status_; }
  Json TakeRoot() { return std::move(root_); }

 private:
  static constexpr size_t kHashFrom = 16;
  struct Level {
    Json json;
    absl::flat_hash_set<std::string> keys;  // only of large objects
  };

  std::string Where() const {
    int64_t line = 1, column = 0;
    for (const char* p = text_.data(); p < *read_; ++p) {
      column = *p == '\n' ? 0 : column + 1;
      line += *p == '\n';
    }
    return absl::StrCat("line ", line, ", column ", column);
  }

  bool Count() {
    if (++values_ <= limits_.values) return true;
    return Fail(absl::StrCat("more than ", limits_.values, " JSON values"),
                absl::StatusCode::kResourceExhausted);
  }

  bool Place(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Json& parent = levels_.back()->json;
    if (parent.is(Json::Kind::kArray)) {
      parent.Append(std::move(value));
    } else {
      parent.object().back().second = std::move(value);
    }
    return true;
  }
  bool Put(Json value) { return Count() && Place(std::move(value)); }
  bool Open(Json container) {
    if (!Count()) return false;
    if (static_cast<int>(levels_.size()) >= limits_.depth) {
      return Fail(absl::StrCat("nested deeper than ", limits_.depth, " levels"),
                  absl::StatusCode::kResourceExhausted);
    }
    levels_.push_back(std::make_unique<Level>());
    levels_.back()->json = std::move(container);
    return true;
  }
  bool Close() {
    Json done = std::move(levels_.back()->json);
    levels_.pop_back();
    return Place(std::move(done));
  }

  absl::string_view text_;
  JsonLimits limits_;
  const char* const* read_;
  std::vector<std::unique_ptr<Level>> levels_;
  Json root_;
  int64_t values_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("JSON of ", text.size(), " bytes; at most ", limits.bytes, " are read"));
  }
  const char* read = text.data();
  Builder builder(text, limits, &read);
  try {
    const bool ok = nlohmann::json::sax_parse(
        TrackedChars(text.data(), &read), TrackedChars(text.data() + text.size(), &read), &builder);
    if (!ok && builder.status().ok()) builder.Fail("not JSON");
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for the JSON text");
  } catch (const std::exception& error) {
    builder.Fail(SanitizeForTerminal(error.what()));
  }
  if (!builder.status().ok()) return builder.status();
  return builder.TakeRoot();
}

}  // namespace tally
