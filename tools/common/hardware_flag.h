// --hardware=NAME and --peak=RATE, for every program that has them.
#ifndef TALLY_TOOLS_COMMON_HARDWARE_FLAG_H_
#define TALLY_TOOLS_COMMON_HARDWARE_FLAG_H_

#include <string>

#include "absl/status/statusor.h"
#include "tally/analysis/hardware.h"

namespace tally {

// A row of HardwareTable. kInvalidArgument for an unknown name, with what was probably meant.
absl::StatusOr<Hardware> ParseHardware(const std::string& text);

// FLOP/s as in "989.5T", "989.5e12" or "989.5TFLOP/s". kInvalidArgument for what is none, or 0.
absl::StatusOr<double> ParsePeak(const std::string& text);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_HARDWARE_FLAG_H_
