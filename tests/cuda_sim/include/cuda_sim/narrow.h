#ifndef TALLY_TESTS_CUDA_SIM_NARROW_H_
#define TALLY_TESTS_CUDA_SIM_NARROW_H_

// Bits of the narrow floating-point formats to f32 and back, rounded to nearest even.

#include <bit>
#include <cstdint>
#include <limits>

namespace tally_sim::internal {

inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // The exponent's bias differs by 112; the product also makes subnormals normal.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

inline uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fff;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more
  if (rest <
      0x38800000u) {  // below 2^-14: one unit is 2^-24, which is what 0.5's last bit is worth
    const float aligned = std::bit_cast<float>(rest) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  rest += 0xfffu + (rest >> 13 & 1);
  return static_cast<uint16_t>(sign | (rest - 0x38000000u) >> 13);
}

inline float Bfloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t FloatToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// e5m2 is the upper half of an f16.
inline float E5m2ToFloat(uint8_t bits) { return HalfToFloat(static_cast<uint16_t>(bits << 8)); }

// e4m3 has no infinity and one NaN of each sign.
inline float E4m3ToFloat(uint8_t bits) {
  if ((bits & 0x7fu) == 0x7fu) return std::numeric_limits<float>::quiet_NaN();
  const uint32_t sign = (bits & 0x80u) << 24;
  const float magnitude = std::bit_cast<float>((bits & 0x7fu) << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

// An f32 with the 10 bits of fraction that TF32 keeps.
inline float RoundToTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu);
}

}  // namespace tally_sim::internal

#endif  // TALLY_TESTS_CUDA_SIM_NARROW_H_
