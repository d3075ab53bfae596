// graph-report --sweep: rows are single reports, and only what cannot be traced is missing.
#include "graph_report_run.h"

#include "absl/strings/str_split.h"

namespace tally {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class GraphReportSweep : public GraphReport {};

constexpr char kModel[] = "gpt2:layers=4,vocab=100,width=64,heads=2,context=64 ";

TEST_F(GraphReportSweep, RowsAreWhatSingleReportsSay) {
  const Json sweep = ReportOf(absl::StrCat(
      kModel, "--accumulate=2 --sweep 'batch=1,3 dtype=f32,bf16 plan=recorded,none,sqrt'"));
  const JsonArray& rows = sweep.Find("rows")->array();
  ASSERT_EQ(rows.size(), 2 * 2 * 3);
  size_t at = 0;
  for (const char* batch : {"1", "3"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      const Json report =
          ReportOf(absl::StrCat(kModel, "--accumulate=2 --batch=", batch, " --dtype=", dtype));
      const Json& plans = *report.Find("plans");
      for (size_t p = 0; p < 3; ++p, ++at) {
        const Json& row = rows[at];
        EXPECT_EQ(row.Find("at")->Find("batch")->string(), batch);
        EXPECT_EQ(row.Find("at")->Find("dtype")->string(), dtype);
        EXPECT_EQ(*row.Find("model_flops"), *report.Find("flops")->Find("model"));
        const Json& from = p == 0 ? *report.Find("memory") : plans.array()[p - 1];
        EXPECT_EQ(*row.Find("peak"), *from.Find("peak"));
        EXPECT_EQ(*row.Find("saved"), *from.Find("saved"));
        const int64_t again = p == 0 ? 0 : from.Find("recompute_flops")->integer();
        EXPECT_EQ(row.Find("hardware_flops")->integer(),
                  report.Find("flops")->Find("model")->integer() + again);
        EXPECT_EQ(again > 0, p == 2);
      }
    }
  }
}

// Two layers, 1,024 rows: the FLOPs of three columns over the bytes, as a single report has them.
TEST_F(GraphReportSweep, IntensityIsOfEverythingThatRuns) {
  const Json sweep = ReportOf("two-layer --sweep 'batch=1024 plan=recorded,none'");
  // (369,098,752 + 1,327,105 + 81,920) / 13,238,288.
  for (const Json& row : sweep.Find("rows")->array())
    EXPECT_NEAR(row.Find("intensity")->number(), 27.988, 0.0005);
}

TEST_F(GraphReportSweep, SaysWhyARowHasNoFigures) {
  const Outcome run = Run(absl::StrCat(kModel, "--sweep 'seq=64,65,128 batch=1,2'"));
  EXPECT_EQ(run.code, 1);  // after all rows
  EXPECT_THAT(run.err, HasSubstr("--sweep: 4 of 6 rows have no figures: "));
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("6 rows"), HasSubstr("seq=65 batch=1 and 1 more: "),
                    HasSubstr("--seq=65 is longer"), HasSubstr("than the model's context of 64")));
  for (absl::string_view line : absl::StrSplit(run.out, '\n')) EXPECT_LE(line.size(), 100) << line;
  const Outcome csv = Run(absl::StrCat(kModel, "--sweep 'seq=64,65' --csv=-"));
  const std::vector<std::string> lines = absl::StrSplit(csv.out, '\n');
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0],
            "seq,peak_bytes,saved_bytes,model_flops,hardware_flops,intensity,bound,seconds,"
            "mfu_bound,fits,why");
  // seq, five figures, four that nobody asked for, and no reason.
  EXPECT_EQ(std::count(lines[1].begin(), lines[1].end(), ','), 10);
  EXPECT_THAT(lines[1], EndsWith(",,,,,"));
  EXPECT_THAT(lines[2], HasSubstr("65,,,,,,,,,,gpt2"));
}

TEST_F(GraphReportSweep, TellsTheTimeOfEachPlanOnEachDevice) {
  const Json sweep =
      ReportOf(absl::StrCat(kModel, "--sweep 'hardware=h100,a100 plan=recorded,none,sqrt'"));
  size_t at = 0;
  const JsonArray& rows = sweep.Find("rows")->array();
  for (const char* hardware : {"h100", "a100"}) {
    const Json report = ReportOf(absl::StrCat(kModel, "--hardware=", hardware));
    const Json& time = *report.Find("time");
    for (size_t p = 0; p < 3; ++p) {
      const Json& row = rows[at++];
      const Json& seconds =
          p == 0 ? *time.Find("seconds") : *time.Find("plans")->array()[p - 1].Find("seconds");
      EXPECT_DOUBLE_EQ(row.Find("seconds")->number(), seconds.number());
      // Model FLOPs do not grow with what is run again, so MFU falls as the time grows.
      EXPECT_DOUBLE_EQ(row.Find("mfu_bound")->number() * seconds.number(),
                       time.Find("mfu_bound")->number() * time.Find("seconds")->number());
      EXPECT_EQ(row.Find("bound")->string(), "memory");  // of small products
    }
    EXPECT_EQ(*rows[at - 3].Find("bound"), *time.Find("bound"));
    EXPECT_GT(rows[at - 1].Find("seconds")->number(), rows[at - 2].Find("seconds")->number());
  }
  const Outcome text = Run(absl::StrCat(kModel, "--sweep 'hardware=h100,a100'"));
  EXPECT_THAT(text.out, AllOf(HasSubstr("at least"), HasSubstr("MFU up to"), HasSubstr("fits")));
}

TEST_F(GraphReportSweep, TellsWhatFitsOnARank) {
  const std::string flags = absl::StrCat(kModel, "--memory=5MB --reserve=0 ");
  const Outcome run = Run(absl::StrCat(flags, "--sweep 'batch=1,2 gpus=1,4 zero=0,2' --json=-"));
  EXPECT_EQ(run.code, 1) << run.err;  // a stage without ranks is no step
  const Json sweep = ValueOrThrow(ParseJson(run.out));
  size_t at = 0;
  const JsonArray& rows = sweep.Find("rows")->array();
  bool all = true, any = false;
  for (const char* batch : {"1", "2"}) {
    for (const char* gpus : {"1", "4"}) {
      for (const char* zero : {"0", "2"}) {
        const Json& row = rows[at++];
        if (*gpus == '1' && *zero == '2') {
          EXPECT_THAT(row.Find("why")->string(), HasSubstr("say how many with --gpus"));
          continue;
        }
        const Json report =
            ReportOf(absl::StrCat(flags, "--batch=", batch, " --gpus=", gpus, " --zero=", zero));
        const Json& recorded = report.Find("verdict")->Find("cases")->array()[0];
        EXPECT_EQ(*row.Find("peak"), *recorded.Find("peak"));
        EXPECT_EQ(row.Find("fits")->boolean(), row.Find("peak")->integer() <= 5'000'000);
        all &= row.Find("fits")->boolean();
        any |= row.Find("fits")->boolean();
      }
    }
  }
  EXPECT_TRUE(any && !all);
}

TEST_F(GraphReportSweep, FailsWhenNoRowHasFigures) {
  const Outcome none = Run("nosuch --sweep 'batch=1,2'");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("no built-in model 'nosuch'"));
  EXPECT_EQ(Run("./nosuch.bin --sweep 'batch=1,2'").code, 3);
  ASSERT_EQ(Run("mlp:4,3 --quiet --graph=step.json").code, 0);
  const Outcome recorded = Run("step.json --sweep 'batch=1,2'");
  EXPECT_EQ(recorded.code, 2);
  EXPECT_THAT(recorded.err, HasSubstr("no family to trace again"));
  EXPECT_EQ(Run("step.json --sweep 'plan=none,sqrt'").code, 0);
}

TEST_F(GraphReportSweep, RefusesWhatNoRowCouldBe) {
  const auto error = [&](const std::string& arguments) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
    return run.err;
  };
  EXPECT_THAT(error("mlp --sweep 'bach=1,2'"), HasSubstr("did you mean batch?"));
  EXPECT_THAT(error("mlp --sweep 'batch=1,,2'"), HasSubstr("a value is missing"));
  EXPECT_THAT(error("mlp --sweep 'batch=1,1'"), HasSubstr("has \"1\" twice"));
  EXPECT_THAT(error("mlp --sweep 'batch=1 batch=2'"), HasSubstr("comes twice"));
  EXPECT_THAT(error("mlp --sweep ' '"), HasSubstr("names no axis"));
  EXPECT_THAT(error("mlp --sweep 'batch=1,x'"), HasSubstr("--batch=x: wanted a whole number"));
  EXPECT_THAT(error("mlp --sweep 'plan=none,sqr'"), HasSubstr("did you mean sqrt?"));
  EXPECT_THAT(error("mlp --batch=2 --sweep 'batch=1'"), HasSubstr("--batch is given twice"));
  EXPECT_THAT(error("mlp --sweep 'batch=1' --explain=memory.peak"), HasSubstr("--explain is of"));
  EXPECT_THAT(error("mlp --sweep 'batch=1' --csv=- --json=-"), HasSubstr("only one of"));
  std::string values = "1";
  for (int i = 2; i <= 100; ++i) absl::StrAppend(&values, ",", i);
  EXPECT_THAT(error(absl::StrCat("mlp --sweep 'batch=", values, " accumulate=", values, "'")),
              HasSubstr("more than 1,000 combinations"));
}

}  // namespace
}  // namespace tally
