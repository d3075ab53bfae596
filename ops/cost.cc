#include "tally/ops/cost.h"

#include <algorithm>

namespace tally {

std::string ToDecimal(Count value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  // The magnitude as unsigned, so that the least value does not overflow.
  absl::uint128 rest =
      negative ? -static_cast<absl::uint128>(value) : static_cast<absl::uint128>(value);
  std::string digits;
  while (rest != 0) {
    digits.push_back(static_cast<char>('0' + static_cast<int>(absl::Uint128Low64(rest % 10))));
    rest /= 10;
  }
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string ToGrouped(Count value) {
  const std::string digits = ToDecimal(value);
  const size_t first = digits[0] == '-' ? 1 : 0;
  std::string grouped = digits.substr(0, first);
  for (size_t i = first; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) grouped.push_back(',');
    grouped.push_back(digits[i]);
  }
  return grouped;
}

}  // namespace tally
