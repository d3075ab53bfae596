// The section "rules" of the summary and of report.json.
#ifndef TALLY_IO_SUMMARY_RULES_H_
#define TALLY_IO_SUMMARY_RULES_H_

#include <string>

#include "tally/io/json.h"
#include "tally/io/report.h"

namespace tally {

// The rules beside the record of a report whose analyses are done. Sizes that its source does not
// know leave out the rules that need them.
std::vector<NamedRule> RulesOf(const Report& report);

// A table of values and ratios, then by what each rule differs; "" without rules.
std::string RulesSummary(const Report& report);

// [{name flops ratio exact source formula measured deviation[{term flops}] reason}]; of rules for
// bytes the key is "bytes" in place of "flops".
Json RulesJson(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_RULES_H_
