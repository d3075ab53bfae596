#include "tally/io/quantity.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

TEST(Quantities, CountsAreExactAndWholeAfterTheirSuffix) {
  const struct {
    const char* text;
    int64_t count;
  } cases[] = {{"12", 12},
               {"0", 0},
               {"0.0", 0},
               {"1.5M", 1'500'000},
               {"70.6B", 70'600'000'000},
               {"15T", 15'000'000'000'000},
               {"2.50e1", 25},
               {"78E9", 78'000'000'000},
               {"2.0", 2},
               {"9.007199254740993P", 9'007'199'254'740'993},  // no double holds it
               {"9223372036854775807", INT64_MAX}};
  for (const auto& c : cases) {
    const absl::StatusOr<int64_t> count = ParseCount(c.text);
    ASSERT_TRUE(count.ok()) << c.text << ": " << count.status();
    EXPECT_EQ(*count, c.count) << c.text;
  }
}

TEST(Quantities, RefuseWhatIsNoCount) {
  for (const char* text : {"1.5", "2.5e0", "7.9", "0.0001K", "1.0000000000000000001P", "", ".", "K",
                           "1X", "1e", "-1", "+1", "1.2.3", "9223372036854775808", "10000P", "1e19",
                           "1e400", "9e99999999999", "1000000000000000000000000000000000000000"}) {
    EXPECT_FALSE(ParseCount(text).ok()) << text;
  }
}

TEST(Quantities, BytesAreRoundedToTheNearest) {
  EXPECT_EQ(*ParseBytes("80GB"), 80'000'000'000);
  EXPECT_EQ(*ParseBytes("74.5GiB"), 149 * (int64_t{1} << 29));
  EXPECT_EQ(*ParseBytes("0.1KiB"), 102);  // 102.4
  EXPECT_EQ(*ParseBytes("0.0005KB"), 1);  // a half
  EXPECT_EQ(*ParseBytes("0.00049KB"), 0);
  EXPECT_FALSE(ParseBytes("8388608TiB").ok());  // 2^63
}

TEST(Quantities, AreNamedInTheShortestExactUnit) {
  const std::pair<int64_t, const char*> cases[] = {{80'000'000'000, "80GB"},
                                                   {24'500'000'000, "24.5GB"},
                                                   {5'500'000, "5.5MB"},
                                                   {1'000'000'000'000'000'000, "1EB"},
                                                   {1'500, "1.5kB"},
                                                   {12'000, "12kB"},
                                                   {4'050'000'000, "4.05GB"},
                                                   {int64_t{3} << 30, "3GiB"},
                                                   {1536, "1536B"},
                                                   {65'536, "64KiB"},
                                                   {0, "0B"},
                                                   {INT64_MAX, "9223372036854775807B"}};
  for (const auto& [bytes, name] : cases) {
    EXPECT_EQ(BytesName(bytes), name);
    EXPECT_EQ(ParseBytes(name).value_or(-1), bytes);
  }
}

TEST(Quantities, AreRoundedDownWhereTheirNamesAreLong) {
  struct Case {
    int64_t bytes;
    int digits;
    const char* name;
  };
  for (const Case& c :
       {Case{78'926'258'176, 4, "78.92GB"}, Case{78'926'258'176, 7, "78.92625GB"},
        Case{999'999'999, 4, "999.9MB"}, Case{80'000'000'000, 4, "80GB"},
        Case{24'500'000'000, 4, "24.5GB"}, Case{9'000'100'000, 4, "9GB"},
        Case{int64_t{3} << 30, 4, "3GiB"}, Case{1'234, 4, "1234B"}, Case{123'457, 4, "123457B"},
        Case{123'457, 1, "123kB"}, Case{INT64_MAX, 4, "9.223EB"}, Case{999, 4, "999B"}}) {
    EXPECT_EQ(ShortBytesName(c.bytes, c.digits), c.name);
    EXPECT_LE(ParseBytes(c.name).value_or(INT64_MAX), c.bytes) << c.name;
  }
}

}  // namespace
}  // namespace tally
