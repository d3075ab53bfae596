// What graph-report answers: --explain, --assert, --diff, and lists.
#include <algorithm>

#include "absl/strings/str_split.h"
#include "tally/autograd/tape.h"
#include "tally/io/graph_json.h"
#include "tally/ops/einops/check_shape.h"
#include "tally/ops/unary.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using GraphReportAnswers = GraphReport;

TEST_F(GraphReportAnswers, ExplainsAFigureByItsNodes) {
  const Outcome run = Run("gpt2 --explain=flops.forward.activation_matmul");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("38,654,705,664 FLOPs"), HasSubstr("1,610,612,736"),
                             HasSubstr("sum of the parts: 38,654,705,664")));
  EXPECT_FALSE(fs::exists(Path("gpt2.report")));
}

TEST_F(GraphReportAnswers, ExplainsEveryKeyByPartsThatAddUp) {
  const Json report = ReportOf("cruncher:8,4");
  std::vector<std::string> keys = {"proof.holds", "memory.recipe", "model.name"};
  for (const char* section : {"model", "run", "memory"}) {
    for (const auto& [name, value] : report.Find(section)->object())
      keys.push_back(absl::StrCat(section, ".", name));
  }
  for (const char* phase : {"forward", "backward", "recompute", "optimizer"}) {
    for (const auto& [name, value] : report.Find("flops")->Find(phase)->object())
      keys.push_back(absl::StrCat("flops.", phase, ".", name));
  }
  for (const char* figure : {"numel", "rows", "forward", "input_grad", "weight_grad", "reason"})
    keys.push_back(absl::StrCat("proof.parameters.layers.0.weight.", figure));
  for (const char* plan : {"none", "sqrt"}) {
    for (const auto& [name, value] : report.Find("plans")->array()[0].object())
      keys.push_back(absl::StrCat("plans.", plan, ".", name));
  }
  for (const Json& term : report.Find("proof")->Find("reconciliation")->array())
    keys.push_back("proof.reconciliation." + term.Find("term")->string());
  keys.insert(keys.end(), {"flops.model", "flops.hardware", "rules.6ND.flops", "rules.6ND.ratio",
                           "memory.at_peak.0.bytes"});
  for (const std::string& key : keys) {
    const Outcome run = Run("cruncher:8,4 --explain=" + key);
    EXPECT_EQ(run.code, 0) << key << run.err;
    EXPECT_THAT(run.out, HasSubstr(key.substr(0, key.find('.')))) << key;
  }
}

TEST_F(GraphReportAnswers, ExplainsPeaksOfPlansThatRecompute) {
  for (const char* key : {"plans.sqrt.peak", "plans.sqrt.saved", "plans.sqrt.recompute_flops",
                          "plans.none.peak", "memory.peak", "memory.saved"}) {
    const Outcome run =
        Run(absl::StrCat("gpt2:layers=9,vocab=100,width=64,heads=2 --batch=2 --explain=", key));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("sum of the parts"));
  }
}

TEST_F(GraphReportAnswers, KeepsExplanationsInTheirWidth) {
  for (const char* key :
       {"flops.optimizer.other", "flops.model", "run.phase", "memory.gradients"}) {
    const Outcome run =
        Run(absl::StrCat("gpt2:layers=9,vocab=100,width=64,heads=2 --explain=", key));
    for (absl::string_view line : absl::StrSplit(run.out, '\n')) {
      const auto columns =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, 100) << line;
    }
  }
}

TEST_F(GraphReportAnswers, HasNoReasonWhereNothingIsMissing) {
  const Outcome run = Run("mlp:4,5,3 --explain=proof.parameters.layers.1.weight.reason");
  EXPECT_THAT(run.out, HasSubstr("layers.1.weight.reason = none\n"));
}

TEST_F(GraphReportAnswers, NamesTheOptimizerOfARecordedGraphAsItsFlagDoes) {
  ASSERT_EQ(Run("mlp:4,3 --optimizer=adamw --quiet --graph=step.json").code, 0);
  EXPECT_EQ(ReportOf("step.json").Find("run")->Find("optimizer")->string(), "adamw");
}

TEST_F(GraphReportAnswers, ShowsTheNamesOfAxesAtThePeak) {
  const Tensor x = Tensor::Empty({DType::kF32, {2, 5, 12}}, kMeta);
  Tape tape;
  const Tensor y = Exp(x);
  CheckShape(y, "batch seq hidden");
  Write(Path("named.json"), GraphJsonText(tape.Finish()));
  EXPECT_THAT(Run("named.json").out, HasSubstr("%1 (batch seq hidden)"));
  EXPECT_THAT(Run("named.json --explain=memory.peak").out,
              HasSubstr("f32[2,5,12] (batch seq hidden), of exp"));
}

TEST_F(GraphReportAnswers, SuggestsTheNearestKey) {
  const Outcome run = Run("mlp --explain=memory.peek");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("did you mean memory.peak"));
}

TEST_F(GraphReportAnswers, ChecksAssertions) {
  const std::string model = "two-layer:256,64 --batch=1024 --quiet --out=r ";
  EXPECT_EQ(
      Run(model + "--assert='flops.forward.matmul==167772160' --assert=proof.holds==true").code, 0);
  EXPECT_EQ(Run(model + "--assert='memory.peak<=80GB'").code, 0);
  EXPECT_EQ(Run(model + "--assert='plans.sqrt.ratio_peak < 1.5'").code, 0);
  const Outcome failed = Run(model + "--assert='memory.parameters<300e3'");
  EXPECT_EQ(failed.code, 1);
  // 4·(256·256 + 256·64) bytes.
  EXPECT_THAT(failed.err, AllOf(HasSubstr("327,680"), HasSubstr("not below 300e3")));
}

TEST_F(GraphReportAnswers, RefusesAssertionsThatMakeNoSense) {
  EXPECT_EQ(Run("mlp --assert=memory.peak").code, 2);
  EXPECT_EQ(Run("mlp --assert='memory.peak<lots'").code, 2);
  EXPECT_EQ(Run("mlp --assert='memory.peek<1'").code, 2);
  EXPECT_EQ(Run("mlp --assert='model.name<1'").code, 2);
}

TEST_F(GraphReportAnswers, ComparesTwoReports) {
  ASSERT_EQ(Run("two-layer --batch=1024 --json=old.json --quiet").code, 0);
  EXPECT_THAT(Run("two-layer --batch=1024 --diff=old.json").out, HasSubstr("are equal"));
  const Outcome run = Run("two-layer --batch=2048 --diff=old.json");
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, AllOf(HasSubstr("flops.forward.matmul"), HasSubstr("-167,772,160"),
                             HasSubstr("0.5000")));
}

TEST_F(GraphReportAnswers, ListsModelsWithTheirParameters) {
  const Outcome run = Run("--list-models");
  EXPECT_THAT(run.out, AllOf(HasSubstr("124,439,808"), HasSubstr("354,823,168"),
                             HasSubstr("774,030,080"), HasSubstr("1,557,611,200")));
  EXPECT_THAT(Run("--dtypes").out, AllOf(HasSubstr("f8e4m3fn"), HasSubstr("448")));
  EXPECT_EQ(Run("--help").code, 0);
}

}  // namespace
}  // namespace tally
