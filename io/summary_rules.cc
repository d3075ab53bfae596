#include "tally/io/summary_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/io/model_shape.h"
#include "tally/io/summary_memory.h"
#include "tally/io/table.h"

namespace tally {
namespace {

// "look-up tables +0.552 %".
std::string Differences(const NamedRule& rule) {
  return absl::StrJoin(rule.deviation, ", ", [&](std::string* out, const RuleTerm& term) {
    absl::StrAppend(out, term.label);
    if (rule.exact == 0) return;
    absl::StrAppend(out, absl::StrFormat(" %+.3g %%", 100 * static_cast<double>(term.amount) /
                                                          static_cast<double>(rule.exact)));
  });
}

std::string UnitOf(const NamedRule& rule) { return rule.unit == NamedRule::kFlops ? "FLOPs" : "B"; }

}  // namespace

std::vector<NamedRule> RulesOf(const Report& report) {
  ModelShape shape;
  const ReportSource& source = report.source;
  if (source.family) {
    shape = ShapeOf(*source.family, source.batch.value_or(0), source.sequence.value_or(0));
  }
  RuleInputs inputs{report.graph, report.proof, report.attention, report.saved, shape, {}};
  if (shape.kind == ModelShape::kTransformer && report.phase != "forward") {
    const Plan plan = PlanSegments(report.graph, 1, /*recompute_last=*/true);
    if (!plan.segments.empty())
      inputs.every_block_again = PriceValidPlan(report.graph, plan).recompute.matmul;
  }
  return CompareRules(inputs);
}

std::string RulesSummary(const Report& report) {
  if (report.rules.empty()) return "";
  std::string text = "\nRules of thumb beside the record\n";
  Table table({{"rule", Align::kLeft},
               {"value", Align::kRight},
               {"", Align::kLeft},
               {"ratio", Align::kRight},
               {"recorded", Align::kRight}});
  for (const NamedRule& rule : report.rules) {
    const std::optional<double> ratio = rule.ratio();
    if (!rule.value) continue;
    table.AddRow({rule.name, ToGrouped(*rule.value), UnitOf(rule),
                  ratio ? absl::StrFormat("%.4f", *ratio) : std::string("-"),
                  ToGrouped(rule.exact)});
  }
  absl::StrAppend(&text, IndentedLines(table), "  differences, of what was recorded:\n");
  std::vector<std::pair<std::string, std::string>> refused;  // reason, names
  for (const NamedRule& rule : report.rules) {
    if (rule.value) {
      absl::StrAppend(&text, Wrapped(absl::StrCat("  ", rule.name, ": ",
                                                  rule.deviation.empty() ? std::string("exact")
                                                                         : Differences(rule))));
      continue;
    }
    const auto same = std::find_if(refused.begin(), refused.end(),
                                   [&](const auto& line) { return line.first == rule.reason; });
    if (same == refused.end())
      refused.emplace_back(rule.reason, rule.name);
    else
      absl::StrAppend(&same->second, ", ", rule.name);
  }
  for (const auto& [reason, names] : refused)
    absl::StrAppend(&text, Wrapped(absl::StrCat("  no value of ", names, ": ", reason)));
  absl::StrAppend(&text, "  --explain=rules.NAME tells source, formula and every difference\n");
  return text;
}

Json RulesJson(const Report& report) {
  Json rules = Json::Array();
  for (const NamedRule& rule : report.rules) {
    const char* const unit = rule.unit == NamedRule::kFlops ? "flops" : "bytes";
    const std::optional<double> ratio = rule.ratio();
    Json json = Json::Object();
    json.Add("name", rule.name).Add(unit, rule.value ? Json(*rule.value) : Json());
    json.Add("ratio", ratio ? Json(*ratio) : Json()).Add("exact", rule.exact);
    json.Add("source", rule.source);
    json.Add("formula", rule.formula.empty() ? Json() : Json(rule.formula));
    json.Add("measured", rule.measured);
    Json deviation = Json::Array();
    for (const RuleTerm& term : rule.deviation) {
      Json part = Json::Object();
      deviation.Append(part.Add("term", term.key).Add(unit, term.amount));
    }
    rules.Append(json.Add("deviation", std::move(deviation)).Add("reason", rule.reason));
  }
  return rules;
}

}  // namespace tally
