#include "tally/io/text.h"

#include "gtest/gtest.h"

namespace tally {
namespace {

TEST(SanitizeForTerminal, LeavesOrdinaryNamesAlone) {
  EXPECT_EQ(SanitizeForTerminal("h.0/attn <q> \"\xc3\xa9\xe6\xbc\xa2\" {\\}"),
            "h.0/attn <q> \"\xc3\xa9\xe6\xbc\xa2\" {\\}");
}

TEST(SanitizeForTerminal, EscapesControlBytes) {
  EXPECT_EQ(SanitizeForTerminal("\x1b[31mred\n\t\x7f"), "\\x1b[31mred\\n\\t\\x7f");
  EXPECT_EQ(SanitizeForTerminal("\xc2\x9b"), "\\x9b");  // the one-character CSI
}

TEST(SanitizeForTerminal, EscapesMarksThatReorderText) {
  EXPECT_EQ(SanitizeForTerminal("a\xe2\x80\xae"), "a\\u202e");
}

TEST(SanitizeForTerminal, ReplacesInvalidUtf8) {
  const std::string fffd = "\xef\xbf\xbd";
  EXPECT_EQ(SanitizeForTerminal("a\xff z"), "a" + fffd + " z");
  EXPECT_EQ(SanitizeForTerminal("\xe6\xbc"), fffd);         // cut
  EXPECT_EQ(SanitizeForTerminal("\xc0\xaf"), fffd + fffd);  // overlong '/'
  EXPECT_EQ(SanitizeForTerminal("\xed\xa0\x80"), fffd);     // a surrogate
}

TEST(Quoted, EscapesQuotesAndCutsLongText) {
  EXPECT_EQ(Quoted("a\"b\\"), "\"a\\\"b\\\\\"");
  EXPECT_EQ(Quoted("abcdef", 3), "\"abc...\"");
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("\xe6\xbc\xa2"), 2);  // a Han character
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);     // e and a combining acute
  EXPECT_EQ(DisplayWidth("\xce\xb1"), 1);      // alpha
}

}  // namespace
}  // namespace tally
