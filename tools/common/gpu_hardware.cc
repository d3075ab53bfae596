#include "tally/tools/common/gpu_hardware.h"

#include "absl/strings/match.h"

namespace tally {

const Hardware* HardwareOfGpu(absl::string_view model) {
  struct Row {
    absl::string_view first, second;  // both are part of the name
    absl::string_view hardware;
  };
  // The first that fits: what is more precise stands before what is less.
  static constexpr Row kRows[] = {
      {"H100", "PCIe", "h100-pcie"}, {"H100", "HBM3", "h100-sxm"},   {"H200", "", "h200"},
      {"B200", "", "b200"},          {"A100", "40GB", "a100-40gb"},  {"A100", "80GB", "a100-80gb"},
      {"RTX 4090", "", "rtx-4090"},  {"NVIDIA L4", "", "l4"},
  };
  for (const Row& row : kRows) {
    if (!absl::StrContains(model, row.first) || !absl::StrContains(model, row.second)) continue;
    // L40 and L40S are other cards than the L4, GB200 is more than a B200, GH200 holds an H100.
    if (row.hardware == "l4" && absl::StrContains(model, "L40")) continue;
    if (row.hardware == "b200" && absl::StrContains(model, "GB200")) continue;
    if (row.hardware == "h200" && absl::StrContains(model, "GH200")) continue;
    return FindHardware(row.hardware);
  }
  return nullptr;
}

}  // namespace tally
