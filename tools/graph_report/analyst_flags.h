// The flags of graph-report about where and how long a step runs: --hardware --tf32 --tokens --gpus
// --mfu.
#ifndef TALLY_TOOLS_GRAPH_REPORT_ANALYST_FLAGS_H_
#define TALLY_TOOLS_GRAPH_REPORT_ANALYST_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "tally/io/report.h"
#include "tally/tools/common/flags.h"

namespace tally {

// Targets of flags that are not what the request holds in the end.
struct AnalystTexts {
  std::string hardware;
  int64_t tokens = 0;
};

// `texts` and `request` must outlive `flags`.
void AddAnalystFlags(Flags& flags, AnalystTexts* texts, ReportRequest* request);

// Completes `request` after parsing. kInvalidArgument names the flag: unknown hardware, or a flag
// that says nothing without another.
absl::Status SetAnalyst(const Flags& flags, const AnalystTexts& texts, ReportRequest* request);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_ANALYST_FLAGS_H_
