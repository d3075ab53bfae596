// What a run on a device reached, beside the rates that the device's maker publishes.
#ifndef TALLY_TOOLS_COMMON_DEVICE_RATES_H_
#define TALLY_TOOLS_COMMON_DEVICE_RATES_H_

#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "tally/analysis/hardware.h"

namespace tally {

// One run: its time, its FLOPs (a multiply-add is two) and its bytes as the account has them, each
// distinct input and output of a node once. A cache can serve some of those, so that their rate may
// pass the memory's.
struct DeviceRun {
  double seconds = 0;  // above 0
  double flops = 0;
  double bytes = 0;
};

// Fields of a JSON row:
//   ms, flops, bytes, TFLOP_per_s (1e12), GB_per_s (1e9), gpu (as its driver calls it)
// with `hardware`, the GPU's row of the hardware table, and `peak`, a rate of it:
//   peak_flops (FLOP/s) and peak_name (row, dtype, dense or sparse), and mfu, the share of that
//   rate bandwidth_peak (bytes/s) and bandwidth_name (row), and of_bandwidth, the share of that
// Null hardware, or a peak of 0, leaves out what cannot be told.
nlohmann::ordered_json RatesJson(const DeviceRun& run, absl::string_view gpu,
                                 const Hardware* hardware, const Peak& peak);

// The same in words, every share with what it is of; where there is none, why.
std::string RatesText(const nlohmann::ordered_json& rates);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_DEVICE_RATES_H_
