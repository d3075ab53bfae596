#include "tally/tools/common/device_flag.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"

namespace tally {

absl::StatusOr<UsableDevice> ParseDevice(absl::string_view name) {
  const std::optional<Device> device = DeviceFromName(name);
  if (!device || device->is_meta()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", name, ": wanted cpu, cuda or cuda:N",
                     device ? "; meta has sizes and no numbers" : ""));
  }
  const absl::Status status = BackendFor(*device).status();
  if (status.ok()) return UsableDevice{*device, ""};
  if (status.code() != absl::StatusCode::kFailedPrecondition) return status;
  return UsableDevice{kCpu, absl::StrCat(status.message(), ". Running on the cpu")};
}

}  // namespace tally
