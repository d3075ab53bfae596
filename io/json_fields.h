// JsonFields: the members of one JSON object, read with their kinds and ranges checked.
#ifndef TALLY_IO_JSON_FIELDS_H_
#define TALLY_IO_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/io/json.h"

namespace tally {

// Errors are kInvalidArgument and begin with `what` and, if given, `index`: "node 17 needs ...".
class JsonFields {
 public:
  // `json` and `what` must outlive this.
  JsonFields(const Json& json, const char* what, int64_t index = -1)
      : json_(json), what_(what), index_(index) {}

  // It is an object, and has no members but these.
  absl::Status Only(std::initializer_list<absl::string_view> names) const;
  absl::Status Fault(absl::string_view problem) const;

  const Json* Find(absl::string_view name) const { return json_.Find(name); }
  absl::StatusOr<const JsonArray*> List(const char* name) const;
  absl::Status Text(const char* name, std::string* value) const;
  // false when there is no such member.
  absl::Status Flag(const char* name, bool* value) const;
  // An integer in [low, high]; `absent`, if given, stands for a missing member.
  template <typename T>
  absl::Status Integer(const char* name, absl::int128 low, absl::int128 high, T* value,
                       std::optional<T> absent = std::nullopt) const {
    if (absent.has_value() && Find(name) == nullptr) {
      *value = *absent;
      return absl::OkStatus();
    }
    absl::int128 count = 0;
    const absl::Status status = Count(name, low, high, &count);
    if (status.ok()) *value = static_cast<T>(count);
    return status;
  }

 private:
  absl::Status Count(const char* name, absl::int128 low, absl::int128 high,
                     absl::int128* count) const;

  const Json& json_;
  const char* what_;
  int64_t index_;
};

}  // namespace tally

#endif  // TALLY_IO_JSON_FIELDS_H_
