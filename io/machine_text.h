// A calibrated machine as text: rates of products by shape and dtype, bandwidths, rates of ops.
#ifndef TALLY_IO_MACHINE_TEXT_H_
#define TALLY_IO_MACHINE_TEXT_H_

#include <string>

#include "tally/analysis/calibration.h"

namespace tally {

// Which kind of shape a product has: "batched" (several), else by its sizes "vector" (one is 1),
// "skinny" (the least is at most 16), "small" (all at most 128), "medium" (all at most 512), else
// "large".
std::string ShapeClass(const Workload& work);

// At most 100 columns. A rate of a class is the best of its samples. Ends in a newline.
std::string MachineReport(const Calibration& calibration);

}  // namespace tally

#endif  // TALLY_IO_MACHINE_TEXT_H_
