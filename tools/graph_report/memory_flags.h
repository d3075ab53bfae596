// The flags of graph-report about memory: --memory --reserve --zero --fit --check-fits.
#ifndef TALLY_TOOLS_GRAPH_REPORT_MEMORY_FLAGS_H_
#define TALLY_TOOLS_GRAPH_REPORT_MEMORY_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "tally/io/report.h"
#include "tally/tools/common/flags.h"

namespace tally {

// Targets of flags that are not what the request holds in the end.
struct MemoryTexts {
  std::string memory, reserve, fit;
  int64_t zero = 0;
  bool check_fits = false;
};

// `texts` must outlive `flags`.
void AddMemoryFlags(Flags& flags, MemoryTexts* texts);

// Completes `request` after parsing and after --hardware and --gpus. kInvalidArgument names the
// flag: no quantity of bytes, a reserve that leaves nothing, or a flag that says nothing without
// another.
absl::Status SetMemory(const Flags& flags, const MemoryTexts& texts, ReportRequest* request);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_MEMORY_FLAGS_H_
