// graph-report --napkin [MODEL]: rules of thumb for a run, from a few numbers, and beside them what
// a recorded step of MODEL says.
#ifndef TALLY_TOOLS_GRAPH_REPORT_NAPKIN_H_
#define TALLY_TOOLS_GRAPH_REPORT_NAPKIN_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tally/io/napkin_text.h"
#include "tally/tools/common/flags.h"

namespace tally {

struct ReportOptions;

struct NapkinOptions {
  bool asked = false;                 // --napkin
  int64_t params = 0;                 // 0: of MODEL
  std::string recipe, peak;           // as written
  std::optional<double> flops;        // FLOP/s of --peak
  std::optional<StateRecipe> states;  // of --recipe
};

// Adds --napkin --params --recipe --peak. `options` must outlive `flags`.
void AddNapkinFlags(Flags& flags, NapkinOptions* options);

// Completes the options of the napkin after parsing; without --dtype the step has that of the
// recipe's policy, else bf16. kInvalidArgument: values that are none, its flags without --napkin,
// and flags that say nothing on a napkin.
absl::Status SetNapkin(const Flags& flags, ReportOptions& options);

// Errors as LoadReport and CompareNapkin have them.
absl::StatusOr<NapkinSheet> MakeNapkin(const ReportOptions& options);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_NAPKIN_H_
