#include "tally/io/plan_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

using ::testing::AllOf;
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
    const absl::StatusOr<PlanSpec> spec = ParsePlanName(name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->kind, form.kind);
    EXPECT_EQ(PlanName(*spec), name);
    EXPECT_EQ(PlanFileName(name).find(':'), std::string::npos);
    // An argument more or less is none of them.
    if (form.argument == PlanForm::kNothing) {
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

}  // namespace
}  // namespace tally
