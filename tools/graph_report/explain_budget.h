// --explain for the budget of memory and for the verdict.
#ifndef TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_BUDGET_H_
#define TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_BUDGET_H_

#include "tally/tools/graph_report/explain.h"

namespace tally {

// True for keys of the verdict, and of those of memory the ones that AddBudgetKeys writes.
bool IsBudgetKey(const ReportKey& key);

// `key` is such a one.
Explanation ExplainBudget(const Report& report, const ReportKey& key);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_BUDGET_H_
