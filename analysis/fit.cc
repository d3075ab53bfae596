#include "tally/analysis/fit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"

namespace tally {

absl::StatusOr<FitResult> FindLargest(
    int64_t limit, int64_t usable,
    const std::function<absl::StatusOr<int64_t>(int64_t size)>& peak_at) {
  TALLY_CHECK(limit >= 1) << "a search among no sizes";
  FitResult result;
  const auto probe = [&](int64_t size) -> absl::StatusOr<bool> {
    TALLY_ASSIGN_OR_RETURN(const int64_t peak, peak_at(size));
    result.probes.push_back({size, peak});
    if (peak <= usable)
      result.fits = {size, peak};
    else
      result.over = {size, peak};
    return peak <= usable;
  };
  for (int64_t size = 1;; size = size > limit / 2 ? limit : size * 2) {
    TALLY_ASSIGN_OR_RETURN(const bool fits, probe(size));
    if (!fits || size == limit) break;
  }
  while (result.fits && result.over && result.over->size - result.fits->size > 1) {
    const int64_t middle = result.fits->size + (result.over->size - result.fits->size) / 2;
    TALLY_RETURN_IF_ERROR(probe(middle).status());
  }
  std::sort(result.probes.begin(), result.probes.end(),
            [](const FitProbe& a, const FitProbe& b) { return a.size < b.size; });
  for (size_t i = 1; i < result.probes.size() && result.falls.empty(); ++i) {
    const FitProbe &a = result.probes[i - 1], &b = result.probes[i];
    if (b.peak < a.peak)
      result.falls = absl::StrCat("the peak at ", b.size, " is below that at ", a.size);
  }
  return result;
}

}  // namespace tally
