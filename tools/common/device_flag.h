// --device=cpu|cuda|cuda:N of programs that compute.
#ifndef TALLY_TOOLS_COMMON_DEVICE_FLAG_H_
#define TALLY_TOOLS_COMMON_DEVICE_FLAG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/tensor/device.h"

namespace tally {

struct UsableDevice {
  Device device = kCpu;
  std::string note;  // why it is not the one asked for; "" when it is
};

// The device of that name. One that this build or this machine has not gives the cpu with a note:
// the numbers are the same there. kInvalidArgument for what is no name of a device that computes.
absl::StatusOr<UsableDevice> ParseDevice(absl::string_view name);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_DEVICE_FLAG_H_
