// FindLargest: the largest size (batch, sequence) whose peak fits, with its proof: that it does,
// and that one more does not.
#ifndef TALLY_ANALYSIS_FIT_H_
#define TALLY_ANALYSIS_FIT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tally {

struct FitProbe {
  int64_t size = 0;
  int64_t peak = 0;  // bytes
};

struct FitResult {
  std::optional<FitProbe> fits;  // the largest that does; none: not even 1
  std::optional<FitProbe> over;  // one more, which does not; none: `fits` is the limit
  std::vector<FitProbe> probes;  // every size that was tried, ascending
  // The search rests on peaks that do not fall as the size grows; where one did among the probes:
  // "the peak at 3 is below that at 2". The neighbours in `fits` and `over` are facts either way.
  std::string falls;
};

// Searches sizes 1..limit by doubling, then by bisection: at most 2·log2(limit) calls of `peak_at`,
// which gives the peak in bytes at a size. An error of it ends the search and is returned.
absl::StatusOr<FitResult> FindLargest(
    int64_t limit, int64_t usable,
    const std::function<absl::StatusOr<int64_t>(int64_t size)>& peak_at);

}  // namespace tally

#endif  // TALLY_ANALYSIS_FIT_H_
