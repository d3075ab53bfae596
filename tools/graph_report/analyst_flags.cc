#include "tally/tools/graph_report/analyst_flags.h"

#include <limits>

#include "tally/tensor/check.h"
#include "tally/tools/common/hardware_flag.h"

namespace tally {

void AddAnalystFlags(Flags& flags, AnalystTexts* texts, ReportRequest* request) {
  flags.Group("Where it runs, and for how long");
  flags.Text("hardware", &texts->hardware, "NAME",
             "time, bounds and MFU on it (--list-hardware); h100 is h100-sxm");
  flags.Switch("tf32", &request->peaks.tf32, "contractions of f32 at the rate of TF32");
  flags.Integer("gpus", &request->gpus, 1, int64_t{1} << 32,
                "how many of them, each with a batch of its own");
  flags.Integer("tokens", &texts->tokens, 1, std::numeric_limits<int64_t>::max(),
                "of a whole training run: 15T");
  flags.Real("mfu", &request->mfu, 1e-6, 1,
             "of the run, from 0 to 1; if not given, the most that its roofline allows");
}

absl::Status SetAnalyst(const Flags& flags, const AnalystTexts& texts, ReportRequest* request) {
  if (flags.given("hardware")) {
    TALLY_ASSIGN_OR_RETURN(request->hardware, ParseHardware(texts.hardware));
  }
  if (flags.given("tokens")) request->tokens = texts.tokens;
  if (flags.given("tf32") && request->peaks.tf32 && !request->hardware) {
    return absl::InvalidArgumentError(
        "--tf32 chooses among the rates of a device; say which with --hardware");
  }
  if (flags.given("mfu") && !request->tokens && !flags.given("napkin")) {
    return absl::InvalidArgumentError(
        "--mfu is of a whole run; say how long it is with --tokens, and on what with --hardware");
  }
  return absl::OkStatus();
}

}  // namespace tally
