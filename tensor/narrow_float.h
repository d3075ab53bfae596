// Storage types of the narrow floats. They hold bits; arithmetic happens in float.
// Conversion from float rounds to nearest, ties to even. f16, bf16 and f8e5m2 overflow to infinity
// as IEEE 754 says; f8e4m3fn has no infinity: overflow and infinity become NaN (OCP 8-bit floating
// point specification, non-saturating conversion).
#ifndef TALLY_TENSOR_NARROW_FLOAT_H_
#define TALLY_TENSOR_NARROW_FLOAT_H_

#include <bit>
#include <cstdint>

namespace tally {

namespace internal {
// Rounds `value` to a float with the given exponent and fraction widths and returns its bits.
// `has_infinity` false: exponent all ones is an ordinary binade whose all-ones fraction is NaN.
uint32_t NarrowFromFloat(float value, int exponent_bits, int fraction_bits, bool has_infinity);
float FloatFromNarrow(uint32_t bits, int exponent_bits, int fraction_bits, bool has_infinity);
// Rounds to odd: cut towards zero, and the last bit set when anything was cut. Rounding that to a
// narrow float gives the same bits as rounding the double itself, where nearest would round twice.
float FloatToOdd(double value);
}  // namespace internal

struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    // A NaN keeps its sign and top fraction bits and stays a (quiet) NaN.
    bits = (u & 0x7fffffffu) > 0x7f800000u
               ? static_cast<uint16_t>((u >> 16) | 0x0040u)
               : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value) { bits = std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};

struct F8E4M3FN {
  uint8_t bits = 0;
  F8E4M3FN() = default;
  explicit F8E4M3FN(float value)
      : bits(static_cast<uint8_t>(internal::NarrowFromFloat(value, 4, 3, false))) {}
  explicit operator float() const { return internal::FloatFromNarrow(bits, 4, 3, false); }
};

struct F8E5M2 {
  uint8_t bits = 0;
  F8E5M2() = default;
  explicit F8E5M2(float value)
      : bits(static_cast<uint8_t>(internal::NarrowFromFloat(value, 5, 2, true))) {}
  explicit operator float() const { return internal::FloatFromNarrow(bits, 5, 2, true); }
};

static_assert(sizeof(BF16) == 2 && sizeof(F16) == 2 && sizeof(F8E4M3FN) == 1);

}  // namespace tally

#endif  // TALLY_TENSOR_NARROW_FLOAT_H_
