// Where bytes live. `meta` has sizes and no bytes.
#ifndef TALLY_TENSOR_DEVICE_H_
#define TALLY_TENSOR_DEVICE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tally {

enum class DeviceKind : uint8_t { kCpu, kCuda, kMeta };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  uint8_t index = 0;

  friend bool operator==(Device a, Device b) { return a.kind == b.kind && a.index == b.index; }
  friend bool operator!=(Device a, Device b) { return !(a == b); }
  bool is_meta() const { return kind == DeviceKind::kMeta; }
  std::string ToString() const;  // "cpu", "cuda:0", "meta"
};

inline constexpr Device kCpu{DeviceKind::kCpu, 0};
inline constexpr Device kMeta{DeviceKind::kMeta, 0};

// Parses "cpu", "meta", "cuda", "cuda:1".
std::optional<Device> DeviceFromName(absl::string_view name);

}  // namespace tally

#endif  // TALLY_TENSOR_DEVICE_H_
