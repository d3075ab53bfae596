// Convert<To>(x): one element from any dtype to any other, with the rules of Cast (copy.h), on
// every device. Not part of the interface for users.
#ifndef TALLY_OPS_CONVERT_H_
#define TALLY_OPS_CONVERT_H_

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tally/tensor/narrow_float.h"

namespace tally::internal {

template <typename T>
inline constexpr bool kIsNarrowFloat = std::is_same_v<T, BF16> || std::is_same_v<T, F16> ||
                                       std::is_same_v<T, F8E4M3FN> || std::is_same_v<T, F8E5M2>;

// The float next to `x` on the side of zero, or `x` where exact, with the last bit set where
// inexact (round to odd). Rounding it again to a narrower float then gives what rounding `x` once
// would.
constexpr float OddFloat(double x) {
  const float nearest = static_cast<float>(x);
  if (nearest == x || x != x) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const double reached = nearest;
  if ((reached < 0 ? -reached : reached) > (x < 0 ? -x : x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

// The same from 64-bit integers to double.
constexpr double OddDouble(int64_t x) {
  constexpr uint64_t kExact = uint64_t{1} << 53;
  const uint64_t magnitude = x < 0 ? ~static_cast<uint64_t>(x) + 1 : static_cast<uint64_t>(x);
  if (magnitude < kExact) return static_cast<double>(x);
  const uint64_t kept = magnitude >> 11 | ((magnitude & 0x7ff) != 0 ? 1 : 0);
  const double y = static_cast<double>(kept) * 2048;
  return x < 0 ? -y : y;
}

// To a narrow float, by bits for those of 8: devices have no constructor of them.
template <typename To>
constexpr To RoundFloat(float x) {
  if constexpr (std::is_same_v<To, F8E4M3FN>) {
    To y;
    y.bits = static_cast<uint8_t>(NarrowFromFloat(x, 4, 3, false));
    return y;
  } else if constexpr (std::is_same_v<To, F8E5M2>) {
    To y;
    y.bits = static_cast<uint8_t>(NarrowFromFloat(x, 5, 2, true));
    return y;
  } else {
    return To(x);
  }
}

// On devices `From` is no 8-bit float: widen those first.
template <typename To, typename From>
constexpr To Convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (kIsNarrowFloat<From>) {
    return Convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else if constexpr (kIsNarrowFloat<To>) {
    if constexpr (std::is_same_v<From, float>) {
      return RoundFloat<To>(x);
    } else if constexpr (std::is_same_v<From, double>) {
      return RoundFloat<To>(OddFloat(x));
    } else if constexpr (std::is_same_v<From, int64_t>) {
      return RoundFloat<To>(OddFloat(OddDouble(x)));
    } else {
      return RoundFloat<To>(OddFloat(static_cast<double>(x)));
    }
  } else if constexpr (std::is_floating_point_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (x != x) return To{0};
    // The limit above is a power of two, so it is exact in either float.
    if (x >= static_cast<From>(uint64_t{1} << Limits::digits)) return Limits::max();
    if (x <= static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tally::internal

#endif  // TALLY_OPS_CONVERT_H_
