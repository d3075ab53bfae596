#include "tally/io/json_fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/io/text.h"
#include "tally/ops/cost.h"

namespace tally {

absl::Status JsonFields::Only(std::initializer_list<absl::string_view> names) const {
  if (!json_.is(Json::Kind::kObject)) {
    return Fault(absl::StrCat("is ", json_.KindName(), ", not an object"));
  }
  for (const auto& member : json_.object()) {
    if (std::find(names.begin(), names.end(), absl::string_view(member.first)) == names.end()) {
      return Fault(absl::StrCat("has an unknown field ", Quoted(member.first)));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonFields::Fault(absl::string_view problem) const {
  const std::string where = index_ < 0 ? what_ : absl::StrCat(what_, index_);
  return absl::InvalidArgumentError(absl::StrCat(where, " ", problem));
}

absl::StatusOr<const JsonArray*> JsonFields::List(const char* name) const {
  const Json* json = Find(name);
  if (json == nullptr || !json->is(Json::Kind::kArray)) {
    return Fault(absl::StrCat("needs a list \"", name, "\""));
  }
  return &json->array();
}

absl::Status JsonFields::Text(const char* name, std::string* value) const {
  const Json* json = Find(name);
  if (json == nullptr || !json->is(Json::Kind::kString)) {
    return Fault(absl::StrCat("needs a string \"", name, "\""));
  }
  *value = json->string();
  return absl::OkStatus();
}

absl::Status JsonFields::Flag(const char* name, bool* value) const {
  const Json* json = Find(name);
  if (json != nullptr && !json->is(Json::Kind::kBool)) {
    return Fault(absl::StrCat("needs true or false as \"", name, "\""));
  }
  *value = json != nullptr && json->boolean();
  return absl::OkStatus();
}

absl::Status JsonFields::Count(const char* name, absl::int128 low, absl::int128 high,
                               absl::int128* count) const {
  const Json* json = Find(name);
  if (json == nullptr || !json->ToCount(count)) {
    return Fault(absl::StrCat("needs an integer \"", name, "\""));
  }
  if (*count >= low && *count <= high) return absl::OkStatus();
  return Fault(absl::StrCat("has \"", name, "\" ", ToDecimal(*count), ", outside ", ToDecimal(low),
                            " to ", ToDecimal(high)));
}

}  // namespace tally
