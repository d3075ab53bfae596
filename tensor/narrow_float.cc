#include "tally/tensor/narrow_float.h"

#include <algorithm>
#include <cmath>

namespace tally::internal {

uint32_t NarrowFromFloat(float value, int exponent_bits, int fraction_bits, bool has_infinity) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 31) << (exponent_bits + fraction_bits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t all_ones = (1u << (exponent_bits + fraction_bits)) - 1;
  const uint32_t infinity = all_ones >> fraction_bits << fraction_bits;
  if (magnitude > 0x7f800000u) {  // NaN: quiet, with the top of its payload
    if (!has_infinity) return sign | all_ones;
    const uint32_t payload = (magnitude & 0x7fffffu) >> (23 - fraction_bits);
    return sign | infinity | payload | (1u << (fraction_bits - 1));
  }
  const uint32_t overflow = has_infinity ? infinity : all_ones;
  if (magnitude == 0x7f800000u) return sign | overflow;

  // value = significand * 2^(exponent - 23)
  const int field = static_cast<int>(magnitude >> 23);
  const int exponent = std::max(field, 1) - 127;
  const uint64_t significand = (magnitude & 0x7fffffu) | (field == 0 ? 0u : 0x800000u);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int target = std::max(exponent + bias, 1);  // exponent field of the result's binade
  // Below the least normal, each missing binade costs one bit. 26 clears everything.
  const int shift = std::min(23 - fraction_bits + target - (exponent + bias), 26);
  const uint64_t half = uint64_t{1} << shift >> 1;
  const uint64_t odd = (significand >> shift) & 1;
  const uint64_t rounded = shift == 0 ? significand : (significand + half - 1 + odd) >> shift;
  // The implicit bit adds 1 to the exponent field, and so does a carry out of the fraction.
  const uint64_t result = (static_cast<uint64_t>(target - 1) << fraction_bits) + rounded;
  return sign | static_cast<uint32_t>(std::min<uint64_t>(result, overflow));
}

namespace {

constexpr float Widen(uint32_t bits, int exponent_bits, int fraction_bits, bool has_infinity) {
  const uint32_t sign = (bits >> (exponent_bits + fraction_bits) & 1u) << 31;
  const uint32_t exponent = bits >> fraction_bits & ((1u << exponent_bits) - 1);
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const uint32_t aligned = fraction << (23 - fraction_bits);
  const uint32_t rebias = 127 - ((1u << (exponent_bits - 1)) - 1);
  if (exponent == (1u << exponent_bits) - 1) {
    if (has_infinity) return std::bit_cast<float>(sign | 0x7f800000u | aligned);
    if (fraction == (1u << fraction_bits) - 1) return std::bit_cast<float>(sign | 0x7fc00000u);
  }
  if (exponent == 0) {
    // fraction * 2^-fraction_bits in the least binade; that power of two is normal but for bf16,
    // whose subnormals are f32's.
    if (rebias == 0) return std::bit_cast<float>(sign | aligned);
    const float unit =
        std::bit_cast<float>((rebias + 1 - static_cast<uint32_t>(fraction_bits)) << 23);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(fraction) * unit) |
                                sign);
  }
  return std::bit_cast<float>(sign | (exponent + rebias) << 23 | aligned);
}

constexpr std::array<float, 256> AllValues(int exponent_bits, int fraction_bits,
                                           bool has_infinity) {
  std::array<float, 256> values{};
  for (uint32_t i = 0; i < 256; ++i) {
    values[i] = Widen(i, exponent_bits, fraction_bits, has_infinity);
  }
  return values;
}

}  // namespace

// Made by the compiler, so that they are there before any other static.
constinit const std::array<float, 256> kF8E4M3FNValues = AllValues(4, 3, false);
constinit const std::array<float, 256> kF8E5M2Values = AllValues(5, 2, true);

float FloatFromNarrow(uint32_t bits, int exponent_bits, int fraction_bits, bool has_infinity) {
  return Widen(bits, exponent_bits, fraction_bits, has_infinity);
}

float FloatToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace tally::internal
