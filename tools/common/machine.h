// --calibrate and --hardware=this|FILE: this machine, measured now or read from a file.
#ifndef TALLY_TOOLS_COMMON_MACHINE_H_
#define TALLY_TOOLS_COMMON_MACHINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tally/analysis/calibration.h"

namespace tally {

// Measures for some 20 s, and besides each call of `model`, where given, one by one; tells on stderr
// what is going on (percents where that is a terminal).
Calibration MeasureMachine(int threads, const Graph* model = nullptr);

// "this", in any case.
bool IsThisMachine(const std::string& hardware);
// Whether --hardware=TEXT means a calibrated machine and not a row of the table: "this", a path
// with a '/', or a name that ends in ".json".
bool NamesMachine(const std::string& hardware);
// The file, as LoadMachine; a missing one's error says how to make it.
absl::StatusOr<Calibration> LoadMachineFlag(const std::string& path);
// This machine with its memory, without rates.
Hardware UnmeasuredMachine();

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_MACHINE_H_
