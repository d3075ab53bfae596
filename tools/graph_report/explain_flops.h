// --explain of FLOPs and of the proof of their split.
#ifndef TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_FLOPS_H_
#define TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_FLOPS_H_

#include "tally/tools/graph_report/explain.h"

namespace tally {

// `key` is below "flops" or "proof".
Explanation ExplainFlops(const Report& report, const ReportKey& key);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_FLOPS_H_
