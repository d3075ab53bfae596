// Quantities as people write them: 70B parameters, 15T tokens, 80GB of memory.
#ifndef TALLY_IO_QUANTITY_H_
#define TALLY_IO_QUANTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tally {

// Digits, an optional fraction and exponent, and a suffix. K M B G T P are powers of
// 1000 ("70B", "15T", "1.5M", "1e6"); a byte quantity takes B kB MB GB TB PB EB (powers of 1000; KB
// is kB) and KiB MiB GiB TiB PiB EiB. Exact: a count that is not whole after its suffix ("1.5", "0.7K") is refused;
// bytes are rounded to the nearest, halves up ("0.1KiB" is 102).
absl::StatusOr<int64_t> ParseCount(absl::string_view text);
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// The shortest exact text, of two the one in the larger unit, the other way round: "80GB", "5.5MB",
// "64KiB", "1234B".
std::string BytesName(int64_t bytes);
// The same for people: never more than `bytes`, and at most `digits` (1 or more) digits of them
// where the exact one is longer: "78.92GB" of 78,926,258,176.
std::string ShortBytesName(int64_t bytes, int digits);

}  // namespace tally

#endif  // TALLY_IO_QUANTITY_H_
