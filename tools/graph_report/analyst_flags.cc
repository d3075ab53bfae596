#include "tally/tools/graph_report/analyst_flags.h"

#include <omp.h>

#include <limits>
#include <memory>
#include <utility>

#include "tally/tensor/check.h"
#include "tally/tools/common/hardware_flag.h"
#include "tally/tools/common/machine.h"

namespace tally {

void AddAnalystFlags(Flags& flags, AnalystTexts* texts, ReportRequest* request) {
  flags.Group("Where it runs, and for how long");
  flags.Text(
      "hardware", &texts->hardware, "NAME",
      "time, bounds and MFU on it (--list-hardware); a FILE of --calibrate; 'this' measures");
  flags.Integer("threads", &texts->threads, 1, 1024,
                "of --calibrate and --hardware=this; if not given, as many as a run has");
  flags.Switch("tf32", &request->peaks.tf32,
               "contractions of f32 at the rate of TF32; where --device is a GPU, in it");
  flags.Integer("gpus", &request->gpus, 1, int64_t{1} << 32,
                "how many of them, each with a batch of its own");
  flags.Integer("tokens", &texts->tokens, 1, std::numeric_limits<int64_t>::max(),
                "of a whole training run: 15T");
  flags.Real("mfu", &request->mfu, 1e-6, 1,
             "of the run, from 0 to 1; if not given, the most that its roofline allows");
}

absl::Status SetAnalyst(const Flags& flags, const AnalystTexts& texts, bool runs_on_gpu,
                        ReportRequest* request) {
  if (flags.given("hardware")) {
    if (NamesMachine(texts.hardware) && !IsThisMachine(texts.hardware)) {
      TALLY_ASSIGN_OR_RETURN(Calibration machine, LoadMachineFlag(texts.hardware));
      request->hardware = HardwareOf(machine);
      request->machine = std::make_shared<const Calibration>(std::move(machine));
    } else if (IsThisMachine(texts.hardware)) {
      request->hardware = UnmeasuredMachine();
    } else {
      TALLY_ASSIGN_OR_RETURN(request->hardware, ParseHardware(texts.hardware));
    }
  }
  if (flags.given("threads") && !flags.given("calibrate") && !IsThisMachine(texts.hardware)) {
    return absl::InvalidArgumentError(
        "--threads is of a calibration: --calibrate or --hardware=this");
  }
  if (flags.given("tokens")) request->tokens = texts.tokens;
  if (flags.given("tf32") && request->peaks.tf32 && !request->hardware && !runs_on_gpu) {
    return absl::InvalidArgumentError(
        "--tf32 chooses among the rates of a device; say which with --hardware, or where a step "
        "runs with --device=cuda");
  }
  if (flags.given("mfu") && !request->tokens && !flags.given("napkin")) {
    return absl::InvalidArgumentError(
        "--mfu is of a whole run; say how long it is with --tokens, and on what with --hardware");
  }
  return absl::OkStatus();
}

int CalibrationThreads(const AnalystTexts& texts) {
  return texts.threads > 0 ? static_cast<int>(texts.threads) : omp_get_max_threads();
}

void MeasureHardware(const AnalystTexts& texts, const Graph* model, ReportRequest* request) {
  // The rows of a sweep ask again.
  static const auto* const machine = new std::shared_ptr<const Calibration>(
      std::make_shared<const Calibration>(MeasureMachine(CalibrationThreads(texts), model)));
  request->machine = *machine;
  request->hardware = HardwareOf(**machine);
}

}  // namespace tally
