#include "tally/tensor/device.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tally {

std::string Device::ToString() const {
  if (kind == DeviceKind::kCpu) return "cpu";
  if (kind == DeviceKind::kMeta) return "meta";
  return absl::StrCat("cuda:", static_cast<int>(index));
}

std::optional<Device> DeviceFromName(absl::string_view name) {
  if (name == "cpu") return kCpu;
  if (name == "meta") return kMeta;
  if (name == "cuda") return Device{DeviceKind::kCuda, 0};
  if (!absl::ConsumePrefix(&name, "cuda:") || name.empty() || name.size() > 3) return std::nullopt;
  int index = 0;
  for (const char c : name) {  // digits only: no sign, no blanks
    if (c < '0' || c > '9') return std::nullopt;
    index = index * 10 + (c - '0');
  }
  if (index > 255) return std::nullopt;
  return Device{DeviceKind::kCuda, static_cast<uint8_t>(index)};
}

}  // namespace tally
