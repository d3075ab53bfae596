// Storage types of the narrow floats. They hold bits; arithmetic happens in float.
// Conversion from float rounds to nearest, ties to even. f16, bf16 and f8e5m2 overflow to infinity
// as IEEE 754 says; f8e4m3fn has no infinity: overflow and infinity become NaN (OCP 8-bit floating
// point specification, non-saturating conversion).
#ifndef TALLY_TENSOR_NARROW_FLOAT_H_
#define TALLY_TENSOR_NARROW_FLOAT_H_

#include <array>
#include <bit>
#include <cstdint>

namespace tally {

namespace internal {
// Usable on devices: these and the 16-bit types are constexpr throughout.
// Rounds `value` to a float with the given exponent and fraction widths and returns its bits.
// `has_infinity` false: exponent all ones is an ordinary binade whose all-ones fraction is NaN.
constexpr uint32_t NarrowFromFloat(float value, int exponent_bits, int fraction_bits,
                                   bool has_infinity) {
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
  const int exponent = (field > 1 ? field : 1) - 127;
  const uint64_t significand = (magnitude & 0x7fffffu) | (field == 0 ? 0u : 0x800000u);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int target = (exponent + bias > 1 ? exponent + bias : 1);  // exponent field of the result's binade
  // Below the least normal, each missing binade costs one bit. 26 clears everything.
  const int cut = 23 - fraction_bits + target - (exponent + bias);
  const int shift = cut < 26 ? cut : 26;
  const uint64_t half = uint64_t{1} << shift >> 1;
  const uint64_t odd = (significand >> shift) & 1;
  const uint64_t rounded = shift == 0 ? significand : (significand + half - 1 + odd) >> shift;
  // The implicit bit adds 1 to the exponent field, and so does a carry out of the fraction.
  const uint64_t result = (static_cast<uint64_t>(target - 1) << fraction_bits) + rounded;
  return sign | (result < overflow ? static_cast<uint32_t>(result) : overflow);
}

constexpr float FloatFromNarrow(uint32_t bits, int exponent_bits, int fraction_bits,
                                bool has_infinity) {
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

// Rounds to odd: cut towards zero, and the last bit set when anything was cut. Rounding that to a
// narrow float gives the same bits as rounding the double itself, where nearest would round twice.
float FloatToOdd(double value);
// Every value of the 8-bit formats, by their bits.
extern const std::array<float, 256> kF8E4M3FNValues;
extern const std::array<float, 256> kF8E5M2Values;
}  // namespace internal

struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  constexpr explicit BF16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    // A NaN keeps its sign and top fraction bits and stays a (quiet) NaN.
    bits = (u & 0x7fffffffu) > 0x7f800000u
               ? static_cast<uint16_t>((u >> 16) | 0x0040u)
               : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// In integer arithmetic without branches, so that loops over f16 vectorise on any x86-64; there the
// compiler's _Float16 is a library call per element.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  [[gnu::always_inline]] constexpr explicit F16(float value) : bits(Round(std::bit_cast<uint32_t>(value))) {}
  [[gnu::always_inline]] constexpr explicit operator float() const {
    return std::bit_cast<float>(Widen(bits));
  }

 private:
  // All ones where `condition` holds.
  static constexpr uint32_t Mask(bool condition) { return 0u - static_cast<uint32_t>(condition); }

  [[gnu::always_inline]] static constexpr uint16_t Round(uint32_t u) {
    const uint32_t magnitude = u & 0x7fffffffu;
    // Too small for a normal: adding 1/2 rounds to the multiples of 2^-24, which the low bits
    // count.
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // A NaN keeps its sign and top fraction bits and becomes quiet.
    const uint32_t nan = 0x200u | (magnitude >> 13 & 0x3ffu);
    const uint32_t big = 0x7c00u | (nan & Mask(magnitude > 0x7f800000u));
    const uint32_t is_small = Mask(magnitude < 0x38800000u), is_big = Mask(magnitude > 0x477fffffu);
    const uint32_t rounded = (small & is_small) | (big & is_big) | (normal & ~(is_small | is_big));
    return static_cast<uint16_t>(rounded | (u >> 16 & 0x8000u));
  }
  [[gnu::always_inline]] static constexpr uint32_t Widen(uint32_t h) {
    const uint32_t magnitude = (h & 0x7fffu) << 13;
    // A subnormal counts multiples of 2^-24: give it the exponent of 2^-14 and take 2^-14 away.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + 0x38800000u) -
                                                   std::bit_cast<float>(0x38800000u));
    const uint32_t quiet = 0x00400000u & Mask(magnitude > 0x0f800000u);
    const uint32_t is_small = Mask(magnitude < 0x00800000u), is_big = Mask(magnitude > 0x0f7fffffu);
    const uint32_t normal = (magnitude + 0x38000000u + (0x38000000u & is_big)) | quiet;
    return (small & is_small) | (normal & ~is_small) | (h & 0x8000u) << 16;
  }
};

struct F8E4M3FN {
  uint8_t bits = 0;
  F8E4M3FN() = default;
  explicit F8E4M3FN(float value)
      : bits(static_cast<uint8_t>(internal::NarrowFromFloat(value, 4, 3, false))) {}
  explicit operator float() const { return internal::kF8E4M3FNValues[bits]; }
};

struct F8E5M2 {
  uint8_t bits = 0;
  F8E5M2() = default;
  explicit F8E5M2(float value)
      : bits(static_cast<uint8_t>(internal::NarrowFromFloat(value, 5, 2, true))) {}
  explicit operator float() const { return internal::kF8E5M2Values[bits]; }
};

static_assert(sizeof(BF16) == 2 && sizeof(F16) == 2 && sizeof(F8E4M3FN) == 1);

}  // namespace tally

#endif  // TALLY_TENSOR_NARROW_FLOAT_H_
