#include "tally/tools/common/machine.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/io/machine_json.h"
#include "tally/tools/common/calibrate.h"

namespace tally {

Calibration MeasureMachine(int threads) {
  std::fprintf(stderr, "measuring this machine with %d %s: some 20 seconds\n", threads,
               threads == 1 ? "thread" : "threads");
  CalibrateOptions options;
  options.threads = threads;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    options.progress = [](double done) {
      std::fprintf(stderr, "\r%3.0f %%", 100 * done);
      std::fflush(stderr);
    };
  }
  Calibration calibration = CalibrateMachine(options);
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
