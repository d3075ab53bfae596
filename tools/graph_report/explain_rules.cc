#include "tally/tools/graph_report/explain_rules.h"

#include "absl/strings/str_cat.h"

namespace tally {

Explanation ExplainRule(const Report& report, const ReportKey& key) {
  const NamedRule& rule = report.rules[key.indexes[1]];
  const std::string unit = rule.unit == NamedRule::kFlops ? "FLOPs" : "B";
  Explanation e;
  if (key.parts[2] == "deviation") {
    const RuleTerm& term = rule.deviation[key.indexes[3]];
    e.formula = absl::StrCat("the rule ", term.words);
    e.unit = unit;
    return e;
  }
  const std::string& figure = key.parts[2];
  if (figure == "ratio") {
    e.formula =
        rule.value ? absl::StrCat("the rule over what was recorded: ", rule.measured) : rule.reason;
    if (rule.value)
      e.substituted = absl::StrCat(ToGrouped(*rule.value), " / ", ToGrouped(rule.exact));
    return e;
  }
  if (figure == "exact") {
    e.formula = absl::StrCat("what the rule is compared with, from the record: ", rule.measured);
    e.unit = unit;
    return e;
  }
  if (figure == "measured") {
    e.formula = "what of the record the rule is compared with";
    return e;
  }
  if (figure != "flops" && figure != "bytes") {
    e.formula = absl::StrCat("the rule is from ", rule.source);
    return e;
  }
  e.formula = rule.value ? absl::StrCat(rule.source, ": ", rule.formula)
                         : absl::StrCat(rule.source, ": ", rule.reason);
  if (!rule.value) return e;
  e.unit = unit;
  e.adds_up = true;
  e.parts.push_back(
      {ExplainedPart::kFigure, kNone, absl::StrCat("recorded: ", rule.measured), rule.exact});
  for (const RuleTerm& term : rule.deviation) {
    e.parts.push_back(
        {ExplainedPart::kFigure, kNone, absl::StrCat("the rule ", term.words), term.amount});
  }
  return e;
}

Explanation ExplainPolynomials(const Report& report, const ReportKey& key) {
  Explanation e;
  if (!report.all_sizes) {
    e.formula =
        report.all_sizes_note.empty() ? "not recovered: --no-polynomials" : report.all_sizes_note;
    return e;
  }
  const std::string& figure = key.parts[2];
  if (figure == "domain") {
    e.formula = "sizes for which the polynomials are proposed and were tried: [from, to]";
  } else if (figure == "fitted") {
    e.formula = "[B,T] of the traces that the polynomials go through";
  } else if (figure == "checked") {
    e.formula = "[B,T] of other traces, with which they were compared; the record's own among them";
  } else if (figure == "holds" || figure == "failures") {
    e.formula = "whether every polynomial gives what the trace of each size in checked has";
  } else if (figure == "peak") {
    e.formula =
        "the greatest of the polynomials of live bytes, one for each event of the record; those "
        "that never lead are left out";
  } else {
    e.formula =
        "through the counts of the traces in fitted, by divided differences in exact rationals; "
        "a term is coefficient·B^batch·T^sequence; null and a note where the greatest over time is "
        "no one polynomial";
  }
  return e;
}

}  // namespace tally
