// The text of an explanation: parts that are alike in every block stand on one line.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tally/io/summary.h"
#include "tally/io/table.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"
#include "tally/tools/graph_report/explain.h"

namespace tally {
namespace {

struct Group {
  ExplainedPart::Kind kind;
  std::string what;
  Count each = 0;
  std::vector<int32_t> ids;
  size_t parts = 0;
};

// Digits of scopes and names as "*", sizes as they are.
std::string Pattern(const ExplainedPart& part) {
  std::vector<std::string> words;
  for (size_t at = 0; at < part.what.size();) {
    const size_t space = std::min(part.what.find(' ', at), part.what.size());
    std::string word = part.what.substr(at, space - at);
    const bool sizes = word.find('[') != std::string::npos || word.find("·") != std::string::npos;
    if (!sizes) word = word[0] == '%' ? "%*" : ScopePattern(word);
    words.push_back(std::move(word));
    at = space + 1;
  }
  return absl::StrJoin(words, " ");
}

std::vector<Group> GroupParts(const std::vector<ExplainedPart>& parts) {
  std::vector<Group> groups;
  absl::flat_hash_map<std::string, size_t> index;
  for (const ExplainedPart& part : parts) {
    const std::string pattern = Pattern(part);
    const auto [it, added] = index.try_emplace(
        absl::StrCat(static_cast<int>(part.kind), ToDecimal(part.amount), " ", pattern),
        groups.size());
    if (added) groups.push_back({part.kind, part.what, part.amount, {}, 0});
    Group& group = groups[it->second];
    if (!added) group.what = pattern;
    if (part.id != kNone) group.ids.push_back(part.id);
    ++group.parts;
  }
  return groups;
}

// "3, 17..93 by 4": runs of three and more with one step are written as such.
std::string Ids(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  std::vector<std::string> words;
  for (size_t i = 0; i < ids.size();) {
    size_t end = i + 1;
    while (end + 1 < ids.size() && ids[end + 1] - ids[end] == ids[i + 1] - ids[i]) ++end;
    if (end >= i + 2 && end < ids.size()) {
      const int32_t step = ids[i + 1] - ids[i];
      words.push_back(
          absl::StrCat(ids[i], "..", ids[end], step == 1 ? "" : absl::StrCat(" by ", step)));
      i = end + 1;
    } else {
      words.push_back(absl::StrCat(ids[i++]));
    }
  }
  return absl::StrJoin(words, ", ");
}

void AddGroups(const std::vector<Group>& groups, std::string& text) {
  size_t times = 0, each = 0, total = 0;
  for (const Group& g : groups) {
    times = std::max(times, absl::StrCat(g.parts).size());
    each = std::max(each, ToGrouped(g.each).size());
    total = std::max(total, ToGrouped(g.each * Count(g.parts)).size());
  }
  for (const Group& g : groups) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %*s x %*s = %*s  %s", times, absl::StrCat(g.parts), each,
                                    ToGrouped(g.each), total, ToGrouped(g.each * Count(g.parts)),
                                    SanitizeForTerminal(g.what)));
    if (!g.ids.empty()) {
      const std::string kind = g.kind == ExplainedPart::kNode ? "node" : "storage";
      absl::StrAppend(&text, "; ", kind, g.ids.size() > 1 ? "s " : " ", Ids(g.ids));
    }
    absl::StrAppend(&text, "\n");
  }
}

// Line by line within the width of a report.
std::string WrapLines(const std::string& text) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&out, absl::StripSuffix(Wrapped(line), "\n"), "\n");
  }
  return out;
}

std::string ListBelow(const Json& json, const std::string& path) {
  std::string text = absl::StrCat(path, " has\n");
  for (const auto& [key, value] : AllKeys(json)) {
    if (key.size() > path.size() && key.compare(0, path.size() + 1, path + ".") == 0)
      absl::StrAppend(&text, "  ", SanitizeForTerminal(key), " = ", ValueText(*value), "\n");
  }
  return text;
}

absl::StatusOr<std::string> Explained(const Report& report, const Json& json,
                                      const std::string& text) {
  TALLY_ASSIGN_OR_RETURN(ReportKey key, FindKey(json, text));
  const Json* flops = key.value->Find("flops");
  const bool term = flops != nullptr && key.parts.size() > 1 && key.parts[0] != "model";
  const bool tree = key.value->is(Json::Kind::kObject) || key.value->is(Json::Kind::kArray);
  if (term) {
    key.value = flops;
    key.parts.push_back("flops");
    key.indexes.push_back(1);
  } else if (tree) {
    return ListBelow(json, key.path());
  }
  const std::string path = SanitizeForTerminal(key.path());
  const std::string& last = key.parts.back();
  if (last == "schema" || (key.parts.size() > 2 && (last == "name" || last == "term"))) {
    return absl::StrCat(path, " = ", ValueText(*key.value), "\n");
  }
  const Explanation e = ExplainKey(report, key);
  std::string out = absl::StrCat(path, " = ", ValueText(*key.value),
                                 e.unit.empty() ? "" : absl::StrCat(" ", e.unit), "\n");
  if (!e.formula.empty()) absl::StrAppend(&out, "  ", SanitizeForTerminal(e.formula), "\n");
  if (!e.substituted.empty())
    absl::StrAppend(&out, "  = ", SanitizeForTerminal(e.substituted), "\n");
  AddGroups(GroupParts(e.parts), out);
  if (!e.adds_up) return out;
  Count sum = 0, value = 0;
  for (const ExplainedPart& part : e.parts) sum += part.amount;
  if (!key.value->ToCount(&value) || sum != value) {
    return absl::InternalError(absl::StrCat(path, ": its parts add up to ", ToGrouped(sum),
                                            ", the report says ", ValueText(*key.value)));
  }
  absl::StrAppend(&out, "  sum of the parts: ", ToGrouped(sum), "\n");
  return out;
}

}  // namespace

absl::StatusOr<std::string> ExplainText(const Report& report, const Json& json,
                                        const std::string& text) {
  TALLY_ASSIGN_OR_RETURN(const std::string out, Explained(report, json, text));
  return WrapLines(out);
}

}  // namespace tally
