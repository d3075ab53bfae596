#include "tally/io/json.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text, const JsonLimits& limits = {}) {
  const absl::StatusOr<Json> json = ParseJson(text, limits);
  return json.ok() ? "parsed" : std::string(json.status().message());
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const absl::StatusOr<Json> json =
      ParseJson(R"( {"a": [1, -2.5, true, null], "b": {"c": "x\u00e9\n"}} )");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->Find("a")->array()[0].integer(), 1);
  EXPECT_EQ(json->Find("a")->array()[1].number(), -2.5);
  EXPECT_TRUE(json->Find("a")->array()[2].boolean());
  EXPECT_TRUE(json->Find("a")->array()[3].is(Json::Kind::kNull));
  EXPECT_EQ(json->Find("b")->Find("c")->string(), "x\xc3\xa9\n");
}

TEST(ParseJson, RefusesADuplicateKeyAndSaysWhere) {
  EXPECT_EQ(ErrorOf("{\"a\": 1,\n \"a\": 2}"), "line 2, column 4: duplicate key \"a\"");
}

TEST(ParseJson, RefusesADuplicateKeyInALargeObject) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_THAT(ErrorOf(text + "\"k500\": 0}"), HasSubstr("duplicate key \"k500\""));
  EXPECT_EQ(ErrorOf(text + "\"k1000\": 0}"), "parsed");
}

TEST(ParseJson, AllowsTheSameKeyInDifferentObjects) {
  EXPECT_EQ(ErrorOf(R"({"a": {"a": [{"a": 1}, {"a": 2}]}})"), "parsed");
}

TEST(ParseJson, RefusesNestingBeyondTheLimit) {
  EXPECT_EQ(ErrorOf(std::string(64, '[') + std::string(64, ']')), "parsed");
  EXPECT_THAT(ErrorOf(std::string(65, '[') + std::string(65, ']')),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
}

TEST(ParseJson, RefusesMoreBytesOrValuesThanTheLimits) {
  EXPECT_EQ(ParseJson("[1,2,3]", {.bytes = 6}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ParseJson("[1,2,3]", {.values = 4}).status().code(), absl::StatusCode::kOk);
  EXPECT_EQ(ParseJson("[1,2,3]", {.values = 3}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ParseJson, RefusesTextThatIsNoJson) {
  for (const char* text : {"",         " ",     "{",     "[1,]",        "{\"a\"}", "{a: 1}",  "nul",
                           "01",       "1 2",   "[1] x", "\"\n\"",      "\"\\x\"", "// c\n1", "NaN",
                           "Infinity", "1e999", "'a'",   "\"\\ud800\"", "[1",      "\"abc"}) {
    const absl::StatusOr<Json> json = ParseJson(text);
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(json.status().message()), HasSubstr("line ")) << text;
  }
}

TEST(ParseJson, RefusesInvalidUtf8) {
  for (const char* bytes : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3"}) {
    EXPECT_NE(ErrorOf("\"" + std::string(bytes) + "\""), "parsed");
  }
}

TEST(ParseJson, KeepsControlBytesOutOfItsMessages) {
  EXPECT_THAT(ErrorOf("{\"\\u001b[2J\": 1, \"\\u001b[2J\": 2}"), HasSubstr("\"\\x1b[2J\""));
}

TEST(Json, WritesIntegersExactlyAndLargeOnesAsStrings) {
  EXPECT_EQ(Json(std::numeric_limits<int64_t>::max()).Dump(), "9223372036854775807");
  EXPECT_EQ(Json(std::numeric_limits<int64_t>::min()).Dump(), "-9223372036854775808");
  EXPECT_EQ(Json(uint64_t{1} << 63).Dump(), "\"9223372036854775808\"");
  // 2^100
  EXPECT_EQ(Json(absl::int128(1) << 100).Dump(), "\"1267650600228229401496703205376\"");
}

TEST(Json, ReadsCountsBackFromBothForms) {
  absl::int128 count = 0;
  ASSERT_TRUE(ParseJson("\"1267650600228229401496703205376\"")->ToCount(&count));
  EXPECT_EQ(count, absl::int128(1) << 100);
  ASSERT_TRUE(ParseJson("-7")->ToCount(&count));
  EXPECT_EQ(count, -7);
  for (const char* bad : {"\"\"", "\"-\"", "\"1 \"", "\"007\"", "\"+1\"", "1.0", "true",
                          "\"999999999999999999999999999999999999999\""}) {
    EXPECT_FALSE(ParseJson(bad)->ToCount(&count)) << bad;
  }
}

TEST(Json, WritesDoublesThatReadBackToTheSameBits) {
  for (double value : {0.1, 1.0, -0.0, 1e300, 5e-324, 1.0 / 3, 123456789012345680.0}) {
    const absl::StatusOr<Json> back = ParseJson(Json(value).Dump());
    ASSERT_TRUE(back.ok());
    ASSERT_TRUE(back->is(Json::Kind::kDouble)) << Json(value).Dump();
    EXPECT_EQ(back->number(), value);
    EXPECT_EQ(std::signbit(back->number()), std::signbit(value));
  }
}

TEST(Json, NeverWritesNaNOrInfinity) {
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).Dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).Dump(), "null");
}

TEST(Json, KeepsTheOrderOfMembers) {
  Json json = Json::Object();
  json.Set("z", 1).Set("a", 2).Set("z", 3);
  EXPECT_EQ(json.Dump(), "{\"z\":3,\"a\":2}");
}

TEST(Json, PutsTheOuterLevelsOnLinesOfTheirOwn) {
  const Json json = *ParseJson(R"({"a": [1, [2, 3]], "b": {}})");
  EXPECT_EQ(json.Dump(1), "{\n  \"a\": [1, [2, 3]],\n  \"b\": {}\n}");
  EXPECT_EQ(json.Dump(2), "{\n  \"a\": [\n    1,\n    [2, 3]\n  ],\n  \"b\": {}\n}");
  EXPECT_EQ(ParseJson("[[1, 2], [3]]")->Dump(2), "[\n  [1, 2],\n  [3]\n]");
}

TEST(Json, EscapesWhatATerminalWouldAct) {
  EXPECT_EQ(Json("a\"\\\n\x1b\x7f\xe2\x80\xae").Dump(), "\"a\\\"\\\\\\n\\u001b\\u007f\\u202e\"");
}

TEST(Json, ReplacesBytesThatAreNoUtf8) { EXPECT_EQ(Json("a\xff").Dump(), "\"a\xef\xbf\xbd\""); }

TEST(Json, CopiesAreIndependent) {
  Json a = *ParseJson(R"({"x": [1, {"y": "z"}]})");
  Json b = a;
  b.object()[0].second.Append(2);
  EXPECT_NE(a, b);
  EXPECT_EQ(a.Dump(), R"({"x":[1,{"y":"z"}]})");
}

}  // namespace
}  // namespace tally
