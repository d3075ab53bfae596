#include "tally/tools/common/hardware_flag.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tally/io/text.h"
#include "tally/nn/nearest.h"
#include "tally/tools/common/flags.h"

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

absl::StatusOr<double> ParsePeak(const std::string& text) {
  const absl::StatusOr<int64_t> flops = ParseCount(absl::StripSuffix(text, "FLOP/s"));
  if (flops.ok() && *flops >= 1) return static_cast<double>(*flops);
  return absl::InvalidArgumentError(absl::StrCat("--peak=", SanitizeForTerminal(text),
                                                 ": wanted FLOP/s, as in 989.5T or 989.5e12"));
}

}  // namespace tally
