// The flags of graph-report about where and how long a step runs: --hardware --tf32 --tokens --gpus
// --mfu --threads.
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
  int64_t threads = 0;  // of a calibration; 0: as many as a run has
};

// `texts` and `request` must outlive `flags`.
void AddAnalystFlags(Flags& flags, AnalystTexts* texts, ReportRequest* request);

// Completes `request` after parsing. kInvalidArgument names the flag: unknown hardware, or a flag
// that says nothing without another.
// --hardware=this is left as a device without rates: MeasureHardware finds them, once all flags are
// known to be right. `runs_on_gpu`: a step was asked to, so that what it multiplies in is a
// question.
absl::Status SetAnalyst(const Flags& flags, const AnalystTexts& texts, bool runs_on_gpu,
                        ReportRequest* request);

// Calibrates for --hardware=this: some 20 s, once a program. `model`, where there is one, has its
// calls measured too.
void MeasureHardware(const AnalystTexts& texts, const Graph* model, ReportRequest* request);
// Threads of a calibration: --threads, or as many as a run of this program has.
int CalibrationThreads(const AnalystTexts& texts);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_ANALYST_FLAGS_H_
