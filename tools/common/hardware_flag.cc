#include "tally/tools/common/hardware_flag.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/io/text.h"
#include "tally/nn/nearest.h"

namespace tally {

absl::StatusOr<Hardware> ParseHardware(const std::string& text) {
  if (const Hardware* hardware = FindHardware(text)) return *hardware;
  const std::string lower = absl::AsciiStrToLower(text);
  // Names that go on from what was written, or that it goes on from, are nearer than any by edits.
  std::vector<std::string> near;
  for (const Hardware& hardware : HardwareTable()) {
    const std::string& name = hardware.name;
    if (absl::StartsWith(lower, name) || absl::StartsWith(name, lower)) near.push_back(name);
  }
  if (near.empty()) {
    if (const std::string one = Nearest(lower, HardwareNames()); !one.empty()) near.push_back(one);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--hardware: there is no ", Quoted(text), "; ",
      near.empty() ? "" : absl::StrCat("did you mean ", absl::StrJoin(near, " or "), "? "),
      "--list-hardware shows all"));
}

}  // namespace tally
