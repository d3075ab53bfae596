#include "tally/tools/graph_report/keys.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/io/text.h"
#include "tally/ops/cost.h"
#include "tally/tools/common/flags.h"

namespace tally {
namespace {

bool IsTree(const Json& json) {
  return json.is(Json::Kind::kObject) || json.is(Json::Kind::kArray);
}

size_t Children(const Json& json) {
  return json.is(Json::Kind::kObject) ? json.object().size() : json.array().size();
}

const Json& Child(const Json& json, size_t i) {
  return json.is(Json::Kind::kObject) ? json.object()[i].second : json.array()[i];
}

std::string ChildName(const Json& json, size_t i) {
  if (json.is(Json::Kind::kObject)) return json.object()[i].first;
  for (const char* key : {"name", "term"}) {
    const Json* name = json.array()[i].Find(key);
    if (name != nullptr && name->is(Json::Kind::kString)) return name->string();
  }
  return absl::StrCat(i);
}

// What terms are also called.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"attention", "activation_contractions"},
    {"biases_and_norms", "elementwise_parameters"},
    {"position_table", "lookup_tables"}};

bool Matches(absl::string_view name, absl::string_view rest) {
  return rest == name || (absl::StartsWith(rest, name) && rest[name.size()] == '.');
}

// The child that `rest` begins with: the longest name, else the position in a list.
bool Step(const Json& json, absl::string_view& rest, ReportKey& key) {
  size_t best = 0, length = 0;
  bool found = false;
  const auto consider = [&](size_t i, const std::string& name) {
    if (!Matches(name, rest) || (found && name.size() <= length)) return;
    best = i;
    length = name.size();
    found = true;
  };
  for (size_t i = 0; i < Children(json); ++i) consider(i, ChildName(json, i));
  for (size_t i = 0; !found && json.is(Json::Kind::kArray) && i < Children(json); ++i) {
    consider(i, absl::StrCat(i));
    for (const auto& [other, term] : kOtherNames) {
      if (ChildName(json, i) == term) consider(i, other);
    }
  }
  if (!found) return false;
  key.parts.push_back(ChildName(json, best));
  key.indexes.push_back(best);
  key.value = &Child(json, best);
  rest.remove_prefix(std::min(rest.size(), length + 1));
  return true;
}

void Collect(const Json& json, const std::string& path,
             std::vector<std::pair<std::string, const Json*>>& list) {
  for (size_t i = 0; i < Children(json); ++i) {
    const Json& child = Child(json, i);
    const std::string name = ChildName(json, i);
    // What names an element is no figure of it.
    if (path.find('.') != std::string::npos && (name == "name" || name == "term")) continue;
    const std::string at = path.empty() ? name : absl::StrCat(path, ".", name);
    if (IsTree(child))
      Collect(child, at, list);
    else
      list.emplace_back(at, &child);
  }
}

}  // namespace

std::string ReportKey::path() const { return absl::StrJoin(parts, "."); }

absl::StatusOr<ReportKey> FindKey(const Json& report, absl::string_view text) {
  ReportKey key;
  key.value = &report;
  absl::string_view rest = text;
  bool found = !text.empty();
  while (found && !rest.empty()) found = IsTree(*key.value) && Step(*key.value, rest, key);
  if (found) return key;
  std::vector<std::string> names;
  for (const auto& [name, value] : AllKeys(report)) names.push_back(name);
  // The nearest by edits, then those that hold the last part.
  std::vector<std::string> near;
  const std::string nearest = Nearest(text, names);
  if (!nearest.empty()) near.push_back(nearest);
  const std::string last(text.substr(text.rfind('.') + 1));
  for (const std::string& name : names) {
    if (near.size() >= 5) break;
    if (!last.empty() && absl::StrContains(name, last) && name != nearest) near.push_back(name);
  }
  const Json* time = report.Find("time");
  const Json* hardware = time == nullptr ? nullptr : time->Find("hardware");
  if (absl::StartsWith(text, "time.") && hardware != nullptr && hardware->is(Json::Kind::kNull)) {
    return absl::InvalidArgumentError(absl::StrCat("report.json has no key ", Quoted(text),
                                                   " without a device; say which with --hardware"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("report.json has no key ", Quoted(text),
                   near.empty() ? "; there are model, run, flops, proof, memory, rules, plans, "
                                  "front, time, measured, verdict"
                                : absl::StrCat("; did you mean ", absl::StrJoin(near, ", "), "?")));
}

std::vector<std::pair<std::string, const Json*>> AllKeys(const Json& report) {
  std::vector<std::pair<std::string, const Json*>> list;
  Collect(report, "", list);
  return list;
}

std::string ValueText(const Json& value) {
  absl::int128 count = 0;
  if (value.ToCount(&count)) return ToGrouped(count);
  switch (value.kind()) {
    case Json::Kind::kNull:
      return "none";
    case Json::Kind::kBool:
      return value.boolean() ? "true" : "false";
    case Json::Kind::kDouble:
      return absl::StrFormat("%.10g", value.number());
    case Json::Kind::kString:
      return SanitizeForTerminal(value.string());
    default:
      return value.KindName();
  }
}

}  // namespace tally
