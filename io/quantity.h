// Quantities as people write them: 70B parameters, 15T tokens, 80GB of memory.
#ifndef TALLY_IO_QUANTITY_H_
#define TALLY_IO_QUANTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tally {

// Digits, an optional fraction and exponent, and a suffix. K M B G T P are powers of
// 1000 ("70B", "15T", "1.5M", "1e6"); a byte quantity takes B KB MB GB TB (powers of 1000) and
// KiB MiB GiB TiB. Exact: a count that is not whole after its suffix ("1.5", "0.7K") is refused;
// bytes are rounded to the nearest, halves up ("0.1KiB" is 102).
absl::StatusOr<int64_t> ParseCount(absl::string_view text);
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// The shortest of the units above that is exact, the other way round: "80GB", "64KiB", "1234B".
std::string BytesName(int64_t bytes);

}  // namespace tally

#endif  // TALLY_IO_QUANTITY_H_
