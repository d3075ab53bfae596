#include "tally/io/table.h"

#include "gtest/gtest.h"

namespace tally {
namespace {

TEST(Units, PrintBytesInBothSystems) {
  EXPECT_EQ(BytesText(4608), "4,608 B");
  EXPECT_EQ(BytesText(80'000'000'000), "80.00 GB = 74.51 GiB");  // 80e9 / 2^30 = 74.506
  // 2,127,057,600 parameters of 4 bytes: neither unit goes under the other's name.
  EXPECT_EQ(BytesText(Count(2'127'057'600) * 4), "8.508 GB = 7.924 GiB");
  EXPECT_EQ(BytesText(497'759'232), "497.8 MB = 474.7 MiB");     // / 2^20 = 474.700
  EXPECT_EQ(BytesTextApart(4'660'121, 4'660'120), "4,660,121 B");
  EXPECT_EQ(BytesTextApart(4'660'121, 4'660'121), BytesText(4'660'121));
  EXPECT_EQ(BytesTextApart(4'700'000, 4'660'120), BytesText(4'700'000));
  EXPECT_EQ(BytesText(int64_t{1} << 20), "1.049 MB = 1.000 MiB");
}

TEST(Units, PrintFlopsWithSiPrefixes) {
  EXPECT_EQ(FlopsText(16), "16 FLOPs");
  EXPECT_EQ(FlopsText(874'944'921'600), "874.9 GFLOPs");
  // 6 * 70e9 * 15e12 = 6.3e24, beyond 64 bits.
  EXPECT_EQ(FlopsText(Count(6) * 70'000'000'000 * 15'000'000'000'000), "6.300 YFLOPs");
  EXPECT_EQ(FlopRateText(186e9), "186.0 GFLOP/s");
}

TEST(Units, GoOnePrefixUpInsteadOfPrintingAThousand) {
  EXPECT_EQ(FlopsText(999'999), "1.000 MFLOPs");
  EXPECT_EQ(FlopsText(999'900), "999.9 kFLOPs");
}

TEST(Units, PrintSharesAndTimes) {
  EXPECT_EQ(PercentText(2, 3), "66.67 %");
  EXPECT_EQ(PercentText(1, 0), "-");
  EXPECT_EQ(SecondsText(1.5), "1.500 s");
  EXPECT_EQ(SecondsText(0.0123), "12.30 ms");
  EXPECT_EQ(SecondsText(0.688), "688.0 ms");
  EXPECT_EQ(SecondsText(99.996), "100.0 s");
  EXPECT_EQ(SecondsText(0), "0 s");
  EXPECT_EQ(SecondsText(2 * 3600 + 5 * 60), "2 h 05 min");
  EXPECT_EQ(SecondsText(3 * 86400 + 4 * 3600), "3 d 04 h");
}

TEST(Table, AlignsColumnsAndLeavesNoSpacesAtTheEnd) {
  Table table({{"scope"}, {"matmul", Align::kRight}, {"note"}});
  table.AddRow({"h.0/mlp", "1,024", ""});
  table.AddRow({"x", "16", "small"});
  table.AddRule();
  table.AddRow({"all", "1,040"});
  EXPECT_EQ(table.ToString(),
            "scope    matmul  note\n"
            "-------  ------  -----\n"
            "h.0/mlp   1,024\n"
            "x            16  small\n"
            "-------  ------  -----\n"
            "all       1,040\n");
}

TEST(Table, CountsColumnsAndNotBytes) {
  Table table({{"name"}, {"n", Align::kRight}});
  table.AddRow({"\xce\xb1\xce\xb2\xce\xb3\xce\xb4", "1"});  // four Greek letters
  table.AddRow({"\xe6\xbc\xa2\xe5\xad\x97", "2"});          // two Han characters of two columns
  EXPECT_EQ(table.ToString(),
            "name  n\n"
            "----  -\n"
            "\xce\xb1\xce\xb2\xce\xb3\xce\xb4  1\n"
            "\xe6\xbc\xa2\xe5\xad\x97  2\n");
}

TEST(Table, EscapesControlBytesInCells) {
  Table table({{"name"}});
  table.AddRow({"\x1b[2J\n"});
  EXPECT_EQ(table.ToString(), "name\n---------\n\\x1b[2J\\n\n");
}

TEST(Table, ShortensLongNamesToStayWithinItsWidth) {
  Table table({{"name"}, {"bytes", Align::kRight}});
  table.AddRow({std::string(150, 'a') + "weight", "12"});
  const std::string text = table.ToString();
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  EXPECT_EQ(DisplayWidth(last.substr(0, last.size() - 1)), 100);
  EXPECT_NE(last.find("weight"), std::string::npos);
}

TEST(Shortened, KeepsBothEnds) {
  EXPECT_EQ(Shortened("abcdefghij", 7), "abc\xe2\x80\xa6hij");
  EXPECT_EQ(Shortened("abc", 3), "abc");
}

}  // namespace
}  // namespace tally
