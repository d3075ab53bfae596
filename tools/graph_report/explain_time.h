// --explain of time.
#ifndef TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_TIME_H_
#define TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_TIME_H_

#include "tally/tools/graph_report/explain.h"

namespace tally {

// `key` is below "time".
Explanation ExplainTime(const Report& report, const ReportKey& key);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_TIME_H_
