#include "tally/tensor/narrow_float.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tensor/dtype_dispatch.h"

namespace tally {
namespace {

// One narrow format: its type, widths, and whether it has infinities.
template <typename T, int kExponent, int kFraction, bool kInfinity>
struct Format {
  using Type = T;
  static constexpr int kE = kExponent, kF = kFraction;
  static constexpr bool kHasInfinity = kInfinity;
  static constexpr uint32_t kSign = 1u << (kE + kF);
  static constexpr uint32_t kAllOnes = kSign - 1;
  // The code after the greatest finite magnitude: infinity, or the NaN of f8e4m3fn.
  static constexpr uint32_t kBeyond = kHasInfinity ? kAllOnes >> kF << kF : kAllOnes;

  static T FromBits(uint32_t bits) {
    T value;
    value.bits = static_cast<decltype(value.bits)>(bits);
    return value;
  }
  // What the code stands for, straight from the definition; finite codes only.
  static double Value(uint32_t bits) {
    const int exponent = static_cast<int>((bits & kAllOnes) >> kF);
    const int fraction = static_cast<int>(bits & ((1u << kF) - 1));
    const int bias = (1 << (kE - 1)) - 1;
    const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - kF)
                                           : std::ldexp(fraction + (1 << kF), exponent - bias - kF);
    return (bits & kSign) != 0 ? -magnitude : magnitude;
  }
};

template <typename F>
class NarrowFloat : public testing::Test {};
using Formats = testing::Types<Format<BF16, 8, 7, true>, Format<F16, 5, 10, true>,
                               Format<F8E4M3FN, 4, 3, false>, Format<F8E5M2, 5, 2, true>>;
TYPED_TEST_SUITE(NarrowFloat, Formats);

TYPED_TEST(NarrowFloat, EveryFiniteCodeStandsForItsValue) {
  using F = TypeParam;
  for (uint32_t bits = 0; bits < 2 * F::kSign; ++bits) {
    if ((bits & F::kAllOnes) >= F::kBeyond) continue;
    const float value = static_cast<float>(F::FromBits(bits));
    ASSERT_EQ(value, F::Value(bits)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & F::kSign) != 0) << bits;
  }
}

TYPED_TEST(NarrowFloat, EveryFiniteAndInfiniteCodeComesBack) {
  using F = TypeParam;
  for (uint32_t bits = 0; bits < 2 * F::kSign; ++bits) {
    const float value = static_cast<float>(F::FromBits(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(typename F::Type(value).bits, bits);
  }
}

TYPED_TEST(NarrowFloat, EveryNanStaysANanOfItsSign) {
  using F = TypeParam;
  int nans = 0;
  for (uint32_t bits = 0; bits < 2 * F::kSign; ++bits) {
    const float value = static_cast<float>(F::FromBits(bits));
    if (!std::isnan(value)) continue;
    ++nans;
    const typename F::Type back(value);
    ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    ASSERT_EQ((back.bits & F::kSign) != 0, (bits & F::kSign) != 0) << bits;
  }
  EXPECT_EQ(nans, F::kHasInfinity ? 2 * ((1 << F::kF) - 1) : 2);
}

TYPED_TEST(NarrowFloat, HalfwayGoesToTheEvenNeighbourAndBesideItToTheNearer) {
  using F = TypeParam;
  const auto bits_of = [](double value) {
    return static_cast<uint32_t>(typename F::Type(static_cast<float>(value)).bits);
  };
  // Up to the middle between the greatest finite value and what would come next.
  for (uint32_t low = 0; low < F::kBeyond; ++low) {
    const double middle = (F::Value(low) + F::Value(low + 1)) / 2;
    if (static_cast<float>(middle) != middle) continue;  // below the floats (bf16's smallest)
    const float below = std::nextafter(static_cast<float>(middle), 0.0f);
    const float above = std::nextafter(static_cast<float>(middle), INFINITY);
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(bits_of(middle), even);
    ASSERT_EQ(bits_of(-middle), even | F::kSign);
    ASSERT_EQ(bits_of(below), low);
    ASSERT_EQ(bits_of(above), low + 1);
    ASSERT_EQ(bits_of(-above), (low + 1) | F::kSign);
  }
}

TYPED_TEST(NarrowFloat, OverflowGoesToInfinityOrNan) {
  using F = TypeParam;
  using T = typename F::Type;
  for (const float huge : {std::numeric_limits<float>::max(), INFINITY}) {
    EXPECT_EQ(T(huge).bits, F::kBeyond);
    EXPECT_EQ(T(-huge).bits, F::kBeyond | F::kSign);
    EXPECT_EQ(std::isnan(static_cast<float>(T(huge))), !F::kHasInfinity);
  }
}

TYPED_TEST(NarrowFloat, ZerosKeepTheirSign) {
  using T = typename TypeParam::Type;
  EXPECT_EQ(T(0.0f).bits, 0u);
  EXPECT_EQ(T(-0.0f).bits, TypeParam::kSign);
  EXPECT_EQ(T(-std::numeric_limits<float>::denorm_min()).bits, TypeParam::kSign);
}

TYPED_TEST(NarrowFloat, DoublesRoundOnce) {
  using F = TypeParam;
  // A hair beside each middle, so small that a float cannot see it.
  for (uint32_t low = 0; low + 1 < F::kBeyond; ++low) {
    const double middle = (F::Value(low) + F::Value(low + 1)) / 2;
    const auto bits_of = [](double x) {
      return static_cast<uint32_t>(FromDouble<typename F::Type>(x).bits);
    };
    ASSERT_EQ(bits_of(std::nextafter(middle, 0.0)), low);
    ASSERT_EQ(bits_of(middle), low % 2 == 0 ? low : low + 1);
    ASSERT_EQ(bits_of(std::nextafter(middle, 1e300)), low + 1);
    ASSERT_EQ(bits_of(-std::nextafter(middle, 1e300)), (low + 1) | F::kSign);
  }
}

TYPED_TEST(NarrowFloat, HugeDoublesOverflowLikeInfinity) {
  using T = typename TypeParam::Type;
  EXPECT_EQ(FromDouble<T>(1e300).bits, TypeParam::kBeyond);
  EXPECT_EQ(FromDouble<T>(-1e300).bits, TypeParam::kBeyond | TypeParam::kSign);
  EXPECT_EQ(FromDouble<T>(1e-300).bits, 0u);
  EXPECT_TRUE(std::isnan(static_cast<float>(FromDouble<T>(std::nan("")))));
}

TEST(F8E4M3FN, RoundsAsItsSpecificationSays) {
  EXPECT_EQ(F8E4M3FN(448.0f).bits, 0x7e);
  EXPECT_EQ(F8E4M3FN(464.0f).bits, 0x7e);   // halfway to 480, which does not exist: even is 448
  EXPECT_EQ(F8E4M3FN(464.1f).bits, 0x7f);   // NaN
  EXPECT_EQ(F8E4M3FN(0x1p-9f).bits, 0x01);  // least subnormal
  EXPECT_EQ(F8E4M3FN(0x1p-10f).bits, 0x00);
  EXPECT_EQ(F8E4M3FN(1.0f).bits, 0x38);
}

TEST(F8E5M2, RoundsAsItsSpecificationSays) {
  EXPECT_EQ(F8E5M2(57344.0f).bits, 0x7b);
  EXPECT_EQ(F8E5M2(61440.0f).bits, 0x7c);  // halfway to 65536: even is infinity
  EXPECT_EQ(F8E5M2(61439.0f).bits, 0x7b);
  EXPECT_EQ(F8E5M2(0x1p-16f).bits, 0x01);
  EXPECT_EQ(F8E5M2(1.0f).bits, 0x3c);
}

// A spread of all floats: a step coprime to 2^32 that passes every exponent and both signs.
template <typename Fn>
void ForFloatsSpread(Fn&& fn) {
  for (uint64_t i = 0; i < (uint64_t{1} << 32); i += 9973) {
    fn(std::bit_cast<float>(static_cast<uint32_t>(i)));
  }
}

TEST(NarrowFromFloat, AgreesWithTheCompilersF16) {
  ForFloatsSpread([](float value) {
    const uint16_t expected = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    ASSERT_EQ(internal::NarrowFromFloat(value, 5, 10, true), expected) << value;
    ASSERT_EQ(F16(value).bits, expected) << value;
  });
}

TEST(NarrowFromFloat, AgreesWithTheTypeBF16) {
  ForFloatsSpread([](float value) {
    ASSERT_EQ(internal::NarrowFromFloat(value, 8, 7, true), BF16(value).bits) << value;
  });
}

TEST(FloatFromNarrow, AgreesWithTheCompilersF16) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float expected = static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
    const float got = internal::FloatFromNarrow(bits, 5, 10, true);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << bits;
    }
  }
}

TEST(FloatToOdd, KeepsFloatsAndMarksTheRest) {
  EXPECT_EQ(internal::FloatToOdd(1.5), 1.5f);
  EXPECT_EQ(internal::FloatToOdd(1 + 0x1p-40), 1 + 0x1p-23f);
  EXPECT_EQ(internal::FloatToOdd(1 + 0x1p-22 - 0x1p-40), 1 + 0x1p-23f);
  EXPECT_EQ(internal::FloatToOdd(-1 - 0x1p-40), -1 - 0x1p-23f);
  EXPECT_EQ(internal::FloatToOdd(1e300), std::numeric_limits<float>::max());
  EXPECT_EQ(internal::FloatToOdd(1e-300), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(internal::FloatToOdd(INFINITY), INFINITY);
}

}  // namespace
}  // namespace tally
