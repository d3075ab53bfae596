#include "tally/tools/graph_report/diff.h"

#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/io/table.h"
#include "tally/tools/graph_report/keys.h"

namespace tally {
namespace {

bool Compared(const std::string& key) {
  // Of rules and polynomials: their values, not how they came about.
  const absl::string_view last = absl::string_view(key).substr(key.rfind('.') + 1);
  if (absl::StartsWith(key, "rules.") && last != "ratio" &&
      (absl::StrContains(key, ".deviation.") || (last != "flops" && last != "bytes")))
    return false;
  if (absl::StartsWith(key, "proof.polynomials.") && last != "text") return false;
  return !absl::StartsWith(key, "memory.at_peak.") && key != "model.name" &&
         key != "model.source" && key != "model.format" && key != "schema";
}

struct Difference {
  std::string delta, ratio;
};

Difference Subtract(const Json& a, const Json& b) {
  absl::int128 x = 0, y = 0;
  const auto number = [](const Json& json, absl::int128* count, double* value) {
    if (json.ToCount(count))
      *value = static_cast<double>(*count);
    else if (json.is(Json::Kind::kDouble))
      *value = json.number();
    else
      return false;
    return true;
  };
  double p = 0, q = 0;
  if (!number(a, &x, &p) || !number(b, &y, &q)) return {"", ""};
  Difference d;
  const bool whole = !a.is(Json::Kind::kDouble) && !b.is(Json::Kind::kDouble);
  d.delta =
      whole ? absl::StrCat(y > x ? "+" : "", ToGrouped(y - x)) : absl::StrFormat("%+.4g", q - p);
  d.ratio = p == 0 ? "-" : absl::StrFormat("%.4f", q / p);
  return d;
}

}  // namespace

std::string DiffReports(const Json& one, const Json& other, const std::string& one_name,
                        const std::string& other_name) {
  std::map<std::string, const Json*> there;
  const auto others = AllKeys(other);
  for (const auto& [key, value] : others) there.emplace(key, value);
  Table table({{"key", Align::kLeft},
               {one_name, Align::kRight},
               {other_name, Align::kRight},
               {"delta", Align::kRight},
               {"ratio", Align::kRight}});
  std::map<std::string, const Json*> here;
  int64_t same = 0;
  for (const auto& [key, value] : AllKeys(one)) {
    if (!Compared(key) || !here.emplace(key, value).second) continue;
    const auto it = there.find(key);
    if (it == there.end()) {
      table.AddRow({key, ValueText(*value), "-", "", ""});
    } else if (*it->second != *value) {
      const Difference d = Subtract(*value, *it->second);
      table.AddRow({key, ValueText(*value), ValueText(*it->second), d.delta, d.ratio});
    } else {
      ++same;
    }
  }
  for (const auto& [key, value] : others) {
    if (Compared(key) && here.count(key) == 0) table.AddRow({key, "-", ValueText(*value), "", ""});
  }
  if (table.empty()) {
    return absl::StrCat(one_name, " and ", other_name, " are equal: all ", same,
                        " keys that are compared have the same values\n");
  }
  return absl::StrCat(table.ToString(), same, " keys are equal\n");
}

}  // namespace tally
