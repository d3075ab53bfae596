#include "tally/io/napkin_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tally {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

NapkinSheet SheetOf(const NapkinQuestion& question) {
  NapkinSheet sheet;
  sheet.question = question;
  const absl::StatusOr<NapkinAnswer> answer = AnswerNapkin(question);
  EXPECT_TRUE(answer.ok()) << answer.status();
  if (answer.ok()) sheet.answer = *answer;
  sheet.peak_name = "bf16 dense";
  sheet.memory_name = "as sold";
  return sheet;
}

NapkinSheet Run70B() {
  return SheetOf({.parameters = 70'000'000'000,
                  .tokens = 15'000'000'000'000,
                  .gpus = 1024,
                  .peak = 989.5e12,
                  .mfu = 0.5});
}

TEST(NapkinText, ShowsTheArithmeticWithItsConventions) {
  NapkinSheet sheet = Run70B();
  sheet.sparse_peak = 1979e12;
  EXPECT_THAT(
      NapkinText(sheet),
      AllOf(
          HasSubstr("6·N·D = 6 x 70e9 x 15e12 = 6,300,000,000,000,000,000,000,000 FLOPs (6.3e24)"),
          HasSubstr("a multiply-add is 2 FLOPs"),
          HasSubstr("1,024 GPUs x 989.5e12 FLOP/s (bf16 dense) x 0.5 (MFU) = 506.6e15 FLOP/s"),
          HasSubstr("1.979e15 FLOP/s of the data sheet are with 2:4 sparsity"),
          HasSubstr("12.44e6 s = 143.9 days"), HasSubstr("3,537,140 GPU-hours = 403.8 GPU-years"),
          HasSubstr("bytes of states: --recipe=mixed"),
          HasSubstr("largest model: --hardware=h100 or --memory=80GB, --recipe=mixed"),
          Not(HasSubstr("largest model: 6"))));
}

// 124M parameters under bf16 with an f32 master: 2 + 2 + 12 bytes.
TEST(NapkinText, ShowsEachPartOfTheStatesInBothUnits) {
  const std::string text = NapkinText(SheetOf(
      {.parameters = 124'000'000,
       .memory = 80'000'000'000,
       .recipe = StateRecipe{
           .name = "mixed under adamw", .total = 16, .parts = StateRecipe::Parts{2, 2, 12}}}));
  EXPECT_THAT(text,
              AllOf(HasSubstr("248,000,000  248.0 MB = 236.5 MiB"),
                    HasSubstr("1,488,000,000  1.488 GB = 1.386 GiB"),
                    HasSubstr("124e6 x 16 bytes a parameter (mixed under adamw) = "
                              "1,984,000,000 B = 1.984 GB"),
                    HasSubstr("5,000,000,000 parameters (5e9)"), HasSubstr("1 GPU holds them")));
}

TEST(NapkinText, SaysOfAnEmptyQuestionWhatWouldAnswerIt) {
  const std::string text = NapkinText(SheetOf({}));
  EXPECT_THAT(text, AllOf(HasSubstr("FLOPs: --params=70B, --tokens=15T\n"), HasSubstr("--mfu=0.5"),
                          HasSubstr("--recipe=mixed")));
  EXPECT_THAT(text, Not(HasSubstr("Compute\n")));
}

TEST(NapkinText, ShortensCountsOnlyWhereNothingIsLost) {
  EXPECT_EQ(PowerText(Count(70'000'000'000)), "70e9");
  EXPECT_EQ(PowerText(Count(15'600'000'000'000)), "15.6e12");
  EXPECT_EQ(PowerText(Count(124'000'000)), "124e6");
  EXPECT_EQ(PowerText(Count(124'439'808)), "124,439,808");
  EXPECT_EQ(PowerText(Count(1000)), "1,000");
  // 312 TFLOP/s are 312e12, not 312·2^40.
  EXPECT_EQ(PowerText(312e12, 6), "312e12");
  EXPECT_EQ(PowerText(999.96e6), "1e9");
  EXPECT_EQ(PowerText(0.0), "0");
}

TEST(NapkinText, WritesJsonWithExactCounts) {
  const Json json = NapkinJson(Run70B());
  EXPECT_EQ(json.Find("schema")->string(), "tally.napkin/1");
  const Json* answer = json.Find("answer");
  // More than 63 bits hold: a decimal string.
  EXPECT_EQ(answer->Find("flops")->string(), "6300000000000000000000000");
  EXPECT_NEAR(answer->Find("days")->number(), 143.927, 0.001);
  EXPECT_TRUE(answer->Find("state_bytes")->is(Json::Kind::kNull));
  EXPECT_TRUE(json.Find("traced")->is(Json::Kind::kNull));
}

}  // namespace
}  // namespace tally
