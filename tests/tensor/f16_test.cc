// F16 against the compiler's own half precision, which is another implementation.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "tally/tensor/narrow_float.h"

namespace tally {
namespace {

TEST(F16, WidensEveryValueAsTheCompilerDoes) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    F16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float want = static_cast<float>(std::bit_cast<_Float16>(half.bits));
    ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(half)), std::bit_cast<uint32_t>(want))
        << std::hex << bits;
  }
}

// Of every 2^13 floats between two neighbouring halves, the ends, the middle and what is beside
// them.
TEST(F16, RoundsAroundEveryValueAndEveryTieAsTheCompilerDoes) {
  for (uint64_t u = 0; u < uint64_t{1} << 32; u += 0x1000) {
    for (int64_t beside = -1; beside <= 1; ++beside) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(u + beside));
      const uint16_t want = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
      ASSERT_EQ(F16(value).bits, want) << std::hex << u + beside;
    }
  }
}

TEST(F16, RoundsSubnormalTiesToEven) {
  EXPECT_EQ(F16(0x1p-25f).bits, 0);    // half of the smallest
  EXPECT_EQ(F16(0x1.8p-24f).bits, 2);  // between 1 and 2 of the smallest
  EXPECT_EQ(F16(0x1.000002p-25f).bits, 1);
}

}  // namespace
}  // namespace tally
