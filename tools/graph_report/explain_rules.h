// --explain of rules and of polynomials.
#ifndef TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_RULES_H_
#define TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_RULES_H_

#include "tally/tools/graph_report/explain.h"

namespace tally {

// `key` is below "rules".
Explanation ExplainRule(const Report& report, const ReportKey& key);
// `key` is below "proof.polynomials", or that where there are none.
Explanation ExplainPolynomials(const Report& report, const ReportKey& key);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_RULES_H_
