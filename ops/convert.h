// Convert<To>(x): one element from any dtype to any other, with the rules of Cast (copy.h).
// Not part of the interface for users.
#ifndef TALLY_OPS_CONVERT_H_
#define TALLY_OPS_CONVERT_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tally/tensor/dtype_dispatch.h"

namespace tally::internal {

// The float next to `x` on the side of zero, or `x` where exact, with the last bit set where
// inexact (round to odd). Rounding it again to a narrower float then gives what rounding `x` once
// would.
inline float OddFloat(double x) {
  const float nearest = static_cast<float>(x);
  if (nearest == x || std::isnan(x)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

// The same from 64-bit integers to double.
inline double OddDouble(int64_t x) {
  constexpr uint64_t kExact = uint64_t{1} << 53;
  const uint64_t magnitude = x < 0 ? ~static_cast<uint64_t>(x) + 1 : static_cast<uint64_t>(x);
  if (magnitude < kExact) return static_cast<double>(x);
  const uint64_t kept = magnitude >> 11 | ((magnitude & 0x7ff) != 0 ? 1 : 0);
  const double y = static_cast<double>(kept) * 2048;
  return x < 0 ? -y : y;
}

template <typename To, typename From>
inline To Convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (kIsFloatType<From> && sizeof(From) < 4) {
    return Convert<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (kIsFloatType<To>) {
    if constexpr (sizeof(To) >= 4) {
      return static_cast<To>(x);
    } else if constexpr (std::is_same_v<From, float>) {
      return To(x);
    } else if constexpr (std::is_same_v<From, double>) {
      return To(OddFloat(x));
    } else if constexpr (std::is_same_v<From, int64_t>) {
      return To(OddFloat(OddDouble(x)));
    } else {
      return To(OddFloat(static_cast<double>(x)));
    }
  } else if constexpr (std::is_floating_point_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (x != x) return To{0};
    // The limit above is a power of two, so it is exact in either float.
    if (x >= std::ldexp(From{1}, Limits::digits)) return Limits::max();
    if (x <= static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tally::internal

#endif  // TALLY_OPS_CONVERT_H_
