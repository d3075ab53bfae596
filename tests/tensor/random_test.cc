#include "tally/tensor/random.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tensor/check.h"

namespace tally {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers published with Random123, "philox4x32 10".
TEST(Philox, GivesThePublishedAnswerForZeros) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, GivesThePublishedAnswerForOnes) {
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, GivesThePublishedAnswerForDigitsOfPi) {
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomBits, IsLaneOffsetMod4OfBlockOffsetDiv4) {
  const uint64_t seed = 0x123456789abcdef0;
  const uint64_t offset = (uint64_t{5} << 34) + 3;  // block 5 * 2^32, lane 3
  EXPECT_EQ(RandomBits(seed, 7, offset), Philox4x32({0, 5, 7, 0}, {0x9abcdef0, 0x12345678})[3]);
}

TEST(FillRandomBits, EqualsWordByWordFromAnyOffsetAndForAnyLength) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{62}, uint64_t{67},
                                (uint64_t{1} << 34) - 30, ~uint64_t{0} - 400}) {
    for (const int64_t n : {0, 1, 3, 4, 63, 64, 65, 128, 131, 300}) {
      std::vector<uint32_t> filled(n);
      FillRandomBits(42, 1, offset, filled.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(filled[i], RandomBits(42, 1, offset + i)) << offset << " + " << i;
      }
    }
  }
}

TEST(FillRandomBits, WritesNothingBehindTheEnd) {
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<uint32_t> out(n + 1, 0xabadcafe);
    FillRandomBits(1, 0, 2, out.data(), n);
    EXPECT_EQ(out[n], 0xabadcafe);
  }
}

TEST(UniformFromBits, StaysBelowOne) {
  EXPECT_EQ(UniformFromBits(0), 0.0f);
  EXPECT_EQ(UniformFromBits(~0u), 1.0f - 0x1p-24f);
}

TEST(Random, StreamsAndSeedsOfOneOffsetDiffer) {
  const uint32_t word = Random(1, RandomStream::kInit).NextBits();
  EXPECT_NE(word, Random(1, RandomStream::kDropout).NextBits());
  EXPECT_NE(word, Random(2, RandomStream::kInit).NextBits());
}

TEST(Random, ReserveSkipsWhatNextBitsWouldTake) {
  Random a(9), b(9);
  for (int i = 0; i < 5; ++i) a.NextBits();
  EXPECT_EQ(b.Reserve(5), 0u);
  EXPECT_EQ(a.NextBits(), b.NextBits());
}

TEST(Random, NextBelowReachesEveryValueAboutEquallyOften) {
  Random random(3);
  constexpr int kBound = 7, kDraws = 70000;
  std::array<int, kBound> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts[random.NextBelow(kBound)];
  for (const int count : counts) {
    // Binomial: mean 10000, standard deviation sqrt(70000 * 1/7 * 6/7) = 92.6; five of them.
    EXPECT_NEAR(count, kDraws / kBound, 463);
  }
}

TEST(Random, NextBelowZeroIsRefused) { EXPECT_THROW(Random(5).NextBelow(0), Error); }

TEST(Random, NextBelowOneIsZero) { EXPECT_EQ(Random(5).NextBelow(1), 0u); }

TEST(Random, NextBelowHandlesBoundsBeyond32Bits) {
  Random random(11);
  const uint64_t bound = (uint64_t{1} << 63) + 1;
  bool high = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = random.NextBelow(bound);
    ASSERT_LT(value, bound);
    high |= value >> 62 != 0;
  }
  EXPECT_TRUE(high);
}

TEST(Random, NormalsTakeTwoWordsEach) {
  Random random(1);
  random.NextNormal();
  EXPECT_EQ(random.offset(), 2u);
}

TEST(NormalFromBits, AgreesWithTheFormulaInLibm) {
  Random random(17);
  const double pi = std::acos(-1.0);
  for (int i = 0; i < 100000; ++i) {
    const uint32_t first = random.NextBits(), second = random.NextBits();
    const double u = (first + 1.0) / 4294967296.0, v = second / 4294967296.0;
    ASSERT_NEAR(NormalFromBits(first, second), std::sqrt(-2 * std::log(u)) * std::cos(2 * pi * v),
                2e-14);
  }
}

TEST(NormalFromBits, HoldsAtTheEdgesOfBothWords) {
  // u = 1: ln u = 0. u = 2^-32: sqrt(2 * 32 ln 2).
  const double top = std::sqrt(64 * std::log(2.0));
  EXPECT_EQ(NormalFromBits(~0u, 12345), 0.0);
  EXPECT_NEAR(NormalFromBits(0, 0), top, 1e-14);
  EXPECT_NEAR(NormalFromBits(0, 1u << 30), 0, 1e-14);
  EXPECT_NEAR(NormalFromBits(0, 1u << 31), -top, 1e-14);
  EXPECT_NEAR(NormalFromBits(0, 3u << 30), 0, 1e-14);
  EXPECT_NEAR(NormalFromBits(0, 1u << 29), top * std::sqrt(0.5), 1e-14);
  EXPECT_NEAR(NormalFromBits(0, ~0u), top, 1e-14);
}

TEST(NormalsFromBits, EqualsOneByOneToTheBit) {
  std::vector<uint32_t> bits(2 * 1003);
  FillRandomBits(23, 0, 0, bits.data(), static_cast<int64_t>(bits.size()));
  std::vector<double> out(1003);
  NormalsFromBits(bits.data(), 1003, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], NormalFromBits(bits[2 * i], bits[2 * i + 1])) << i;
  }
}

TEST(Random, NormalsHaveTheMomentsOfANormal) {
  Random random(29);
  constexpr int kDraws = 200000;
  double sum = 0, square = 0, fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.NextNormal();
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  // Five standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / kDraws, 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(square / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(fourth / kDraws, 3, 5 * std::sqrt(96.0 / kDraws));
}

}  // namespace
}  // namespace tally
