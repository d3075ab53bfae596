// graph-report --measure: a step that runs beside what was foretold of it.
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class MeasuredSteps : public GraphReport {
 protected:
  static constexpr char kModel[] = "gpt2:layers=3,width=32,heads=2,vocab=64,context=16 --batch=2 ";
  static const Json& At(const Json& report, size_t i) {
    return report.Find("measured")->Find("plans")->array()[i];
  }
};

TEST_F(MeasuredSteps, HaveThePeakThatWasForetoldUnderEachPlan) {
  const Outcome run =
      Run(std::string(kModel) + "--plan=uniform:1 --measure --hardware=h100 --json=r.json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("\nMeasured on cpu\n"), HasSubstr("equal"),
                             Not(HasSubstr("NOT EQUAL")), HasSubstr("seconds a step"),
                             HasSubstr("the least of 3 whole runs on this machine's CPU")));
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  const Json& measured = *report.Find("measured");
  EXPECT_EQ(measured.Find("device")->string(), "cpu");
  EXPECT_TRUE(measured.Find("reserved")->is(Json::Kind::kNull));
  ASSERT_EQ(measured.Find("plans")->array().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Json& m = At(report, i);
    const Json& plan = report.Find("plans")->array()[i];
    EXPECT_EQ(*m.Find("name"), *plan.Find("name"));
    EXPECT_EQ(*m.Find("peak"), *plan.Find("peak"));
    EXPECT_TRUE(m.Find("equal")->boolean());
    const double seconds = m.Find("seconds")->number();
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 5);
    EXPECT_DOUBLE_EQ(m.Find("tokens_per_second")->number(), 2 * 16 / seconds);
    const double floor = report.Find("time")->Find("plans")->array()[i].Find("seconds")->number();
    EXPECT_DOUBLE_EQ(m.Find("over_floor")->number(), seconds / floor);
    const double peak = report.Find("time")->Find("peak_flops")->number();
    const auto model = static_cast<double>(report.Find("flops")->Find("model")->integer());
    EXPECT_NEAR(m.Find("mfu")->number() * seconds * peak / model, 1, 1e-9);
    const auto again = static_cast<double>(plan.Find("recompute_flops")->integer());
    EXPECT_NEAR(m.Find("hfu")->number() / m.Find("mfu")->number(), 1 + again / model, 1e-9);
  }
  EXPECT_GT(At(report, 0).Find("peak")->integer(), At(report, 1).Find("peak")->integer());
}

TEST_F(MeasuredSteps, AreAlsoThoseOfAFile) {
  SaveSmall("x.bin", "");
  const Outcome run = Run("x.bin --measure --device=cpu --cost=measured --json=r.json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  EXPECT_TRUE(At(report, 0).Find("equal")->boolean());
  EXPECT_TRUE(At(report, 0).Find("mfu")->is(Json::Kind::kNull));
  EXPECT_THAT(report.Find("measured")->Find("how")->string(), HasSubstr("stand-ins"));
  for (const char* key : {"measured.how", "measured.plans.none.seconds",
                          "measured.plans.none.equal", "measured.plans.none.over_floor"}) {
    const Outcome told = Run(absl::StrCat("x.bin --measure --explain=", key));
    EXPECT_EQ(told.code, 0) << key << told.err;
  }
  EXPECT_TRUE(ReportOf("x.bin").Find("measured")->is(Json::Kind::kNull));
}

TEST_F(MeasuredSteps, RunWhereTheyCan) {
  const Outcome no_run = Run("mlp --device=cpu");
  EXPECT_EQ(no_run.code, 2);
  EXPECT_THAT(no_run.err, AllOf(StartsWith("graph-report: --device=cpu says where a step runs"),
                                HasSubstr("--measure"), HasSubstr("--cost=measured")));
  for (const char* device : {"tpu", "meta", "cuda:x", "''"})
    EXPECT_EQ(Run(absl::StrCat("mlp --measure --device=", device)).code, 2) << device;
  EXPECT_EQ(Run("mlp --sweep='batch=1,2' --measure").code, 2);
  // A device that no machine has: the cpu, with a note.
  const Outcome far = Run("mlp:16,8 --measure --device=cuda:63 --quiet --json=r.json");
  EXPECT_EQ(far.code, 0) << far.err;
  EXPECT_THAT(far.err, HasSubstr("Running on the cpu"));
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  EXPECT_EQ(report.Find("measured")->Find("device")->string(), "cpu");
  const Outcome large = Run("mlp:16,8 --batch=100000000000 --measure");
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err, AllOf(StartsWith("graph-report: --measure: the step runs here"),
                               HasSubstr("at hand"), HasSubstr("smaller size")));
}

}  // namespace
}  // namespace tally
