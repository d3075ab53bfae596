#include "tally/io/plan_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tally/io/summary_plans.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FaultOf(const std::string& text) {
  return std::string(ParsePlanName(text).status().message());
}

TEST(PlanNames, AreReadAndWrittenForEveryForm) {
  for (const PlanForm& form : PlanForms()) {
    std::string name = form.word;
    if (form.argument == PlanForm::kCount) name += ":7";
    if (form.argument == PlanForm::kBytes) name += ":24GB";
    if (form.argument == PlanForm::kWord) name += ":attention";
    if (form.argument == PlanForm::kPath) name += "a b/plan-sqrt.txt";
    const absl::StatusOr<PlanSpec> spec = ParsePlanName(name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->kind, form.kind);
    EXPECT_EQ(PlanName(*spec), name);
    EXPECT_EQ(PlanFileName(name).find(':'), std::string::npos);
    // An argument more or less is none of them.
    if (form.argument == PlanForm::kPath) {
      EXPECT_EQ(spec->word, "a b/plan-sqrt.txt");
      EXPECT_EQ(PlanFileName(name), "a-b-plan-sqrt.txt");
      EXPECT_THAT(FaultOf(form.word), HasSubstr("@FILE"));
    } else if (form.argument == PlanForm::kNothing) {
      EXPECT_THAT(FaultOf(name + ":3"), HasSubstr("takes nothing"));
    } else {
      EXPECT_THAT(FaultOf(form.word), HasSubstr(FormText(form)));
      EXPECT_THAT(FaultOf(absl::StrCat(form.word, ":")), HasSubstr(FormText(form)));
    }
  }
}

TEST(PlanNames, RefuseNumbersThatAreNone) {
  EXPECT_EQ(ParsePlanName("uniform:7")->number, 7);
  for (const char* text :
       {"uniform:0", "uniform:-1", "uniform:1.5", "uniform:nan", "uniform:x",
        "uniform:9223372036854775808", "uniform:1e99", "uniform:3:4", "uniform: 3"}) {
    EXPECT_EQ(ParsePlanName(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(FaultOf(text), HasSubstr(text));
  }
}

TEST(PlanNames, SayWhatThereIsAndWhatWasMeant) {
  EXPECT_THAT(FaultOf("sqr"), AllOf(HasSubstr("there is no plan \"sqr\""), HasSubstr("uniform:K"),
                                    HasSubstr("did you mean sqrt?")));
  for (const char* text : {"uniform4", "uniform=4", "uniform-4", "uniform 4"})
    EXPECT_THAT(FaultOf(text), HasSubstr("did you mean uniform:4?")) << text;
  EXPECT_THAT(FaultOf("unifrm:4"), HasSubstr("did you mean uniform?"));
  for (const char* text : {"", ":", ":4", "SQRT", "sqrt\n"})
    EXPECT_FALSE(ParsePlanName(text).ok()) << text;
  EXPECT_THAT(FaultOf("a\x1b[2J"), HasSubstr("\\x1b"));  // nothing acts on a terminal
}

TEST(PlanTitles, ArePlansOfBudgetsThatAreNoLarger) {
  EXPECT_EQ(PlanTitle("chain:6926258176B"), "chain:6.926GB");
  EXPECT_EQ(PlanTitle("search:6926258176"), "search:6.926GB");
  for (const char* exact : {"optimal:80GB", "uniform:1234567890", "selective:cheap", "none", "fit",
                            "recorded", "mincut:64KiB", "chain:x", ""}) {
    EXPECT_EQ(PlanTitle(exact), exact);
  }
  for (int64_t bytes = 1; bytes < INT64_MAX / 7; bytes = bytes * 7 + 3) {
    const std::string title = PlanTitle(absl::StrCat("chain:", bytes, "B"));
    const absl::StatusOr<PlanSpec> spec = ParsePlanName(title);
    ASSERT_TRUE(spec.ok()) << title;
    EXPECT_EQ(spec->kind, PlanSpec::kChain);
    EXPECT_LE(spec->number, bytes);
    EXPECT_GT(static_cast<double>(spec->number), 0.999 * static_cast<double>(bytes));
  }
}

TEST(PlanTitles, TellDifferentPlansApart) {
  EXPECT_THAT(PlanTitles({"chain:6926258176B", "none", "chain:6926358176B", "search:6926258176B"}),
              ElementsAre("chain:6.9262GB", "none", "chain:6.9263GB", "search:6.9262GB"));
  // One plan twice is no reason for more digits.
  EXPECT_THAT(PlanTitles({"chain:6926258176B", "chain:6926258176B"}),
              ElementsAre("chain:6.926GB", "chain:6.926GB"));
}

TEST(SqrtText, SaysInBytesWhyTheRuleLoses) {
  SqrtVerdict verdict{.blocks = 96,
                      .sqrt_length = 10,
                      .best_length = 1,
                      .sqrt_peak = 5'790,
                      .best_peak = 1'530'000'000,
                      .boundary_bytes = 2,
                      .tape_bytes = 2'469};
  EXPECT_THAT(SqrtText(verdict), HasSubstr("sqrt(96) is the best length here"));
  verdict.sqrt_peak = 5'790'000'000;
  EXPECT_EQ(SqrtText(verdict),
            "sqrt(96) loses here: segments of 10 blocks peak at 5.790 GB = 5.392 GiB, segments of "
            "1 block at 1.530 GB = 1.425 GiB. The rule takes a block to keep its boundary alone; "
            "here it keeps 2,469 B of tape besides 2 B of boundary (1,234 times as much), and all "
            "tapes of a segment live at once");
}

}  // namespace
}  // namespace tally
