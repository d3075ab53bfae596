#include "tally/tools/common/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/io/machine_json.h"
#include "tally/tools/common/calibrate.h"

namespace tally {

Calibration MeasureMachine(int threads, const Graph* model) {
  CallLimits limits;
  if (PhysicalMemory() > 0) limits.bytes = std::min(limits.bytes, PhysicalMemory() / 4);
  std::vector<CalibrationCase> calls;
  if (model != nullptr) calls = CasesOf({model}, limits);
  std::fprintf(
      stderr, "measuring this machine with %d %s: some 20 seconds%s\n", threads,
      threads == 1 ? "thread" : "threads",
      calls.empty() ? "" : absl::StrCat(", and ", calls.size(), " calls of the model").c_str());
  CalibrateOptions options;
  options.threads = threads;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    options.progress = [](double done) {
      std::fprintf(stderr, "\r%3.0f %%", 100 * done);
      std::fflush(stderr);
    };
  }
  Calibration calibration = CalibrateMachine(options, calls);
  if (terminal) std::fprintf(stderr, "\r\x1b[K");
  return calibration;
}

bool IsThisMachine(const std::string& hardware) { return absl::EqualsIgnoreCase(hardware, "this"); }

bool NamesMachine(const std::string& hardware) {
  return IsThisMachine(hardware) || absl::StrContains(hardware, '/') ||
         absl::EndsWith(absl::AsciiStrToLower(hardware), ".json");
}

absl::StatusOr<Calibration> LoadMachineFlag(const std::string& path) {
  absl::StatusOr<Calibration> calibration = LoadMachine(path);
  if (!absl::IsNotFound(calibration.status())) return calibration;
  return absl::NotFoundError(absl::StrCat(calibration.status().message(),
                                          "; graph-report --calibrate=", path,
                                          " measures this machine and writes it"));
}

Hardware UnmeasuredMachine() {
  Calibration machine;
  machine.memory = PhysicalMemory();
  return HardwareOf(machine);
}

}  // namespace tally
