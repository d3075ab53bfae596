// The row of the hardware table that a GPU belongs to.
#ifndef TALLY_TOOLS_COMMON_GPU_HARDWARE_H_
#define TALLY_TOOLS_COMMON_GPU_HARDWARE_H_

#include "absl/strings/string_view.h"
#include "tally/analysis/hardware.h"

namespace tally {

// By what its driver calls it, "NVIDIA H100 80GB HBM3"; null for one that the table has not.
const Hardware* HardwareOfGpu(absl::string_view model);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_GPU_HARDWARE_H_
