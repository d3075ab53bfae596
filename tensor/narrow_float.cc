#include "tally/tensor/narrow_float.h"

#include <cmath>

namespace tally::internal {

namespace {

constexpr std::array<float, 256> AllValues(int exponent_bits, int fraction_bits,
                                           bool has_infinity) {
  std::array<float, 256> values{};
  for (uint32_t i = 0; i < 256; ++i) {
    values[i] = FloatFromNarrow(i, exponent_bits, fraction_bits, has_infinity);
  }
  return values;
}

}  // namespace

// Made by the compiler, so that they are there before any other static.
constinit const std::array<float, 256> kF8E4M3FNValues = AllValues(4, 3, false);
constinit const std::array<float, 256> kF8E5M2Values = AllValues(5, 2, true);

float FloatToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace tally::internal
