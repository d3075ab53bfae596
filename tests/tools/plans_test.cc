// graph-report --plan: names, the table, the files, and what is refused.
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/analysis/floor.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/simulate.h"
#include "tally/io/plan_name.h"
#include "tally/nn/presets.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Backward alone returns its gradients: no plan may give them back, and plan none, which runs
// what was recorded in that order, needs what the record did; less only where handles outlive what
// reads them (the routing of experts).
TEST(PlansOfBackward, HoldTheGradientsToTheEnd) {
  for (const char* model :
       {"gpt2:layers=3,width=32,heads=2,vocab=64,context=16", "mlp:8,16,4", "two-layer",
        "llama-3-8b:layers=2,width=32,heads=4,kv_heads=2,inner=48,vocab=64",
        "mixtral-8x7b:layers=1,width=32,heads=4,kv_heads=2,inner=48,vocab=64"}) {
    for (int64_t accumulate : {1, 2}) {
      TraceOptions options{.phase = TracePhase::kBackward, .batch = 2};
      options.accumulate = accumulate;
      const Graph graph =
          ValueOrThrow(TraceModel(ValueOrThrow(BuiltinConfig(model)), options)).graph;
      const MemoryReport memory = AnalyzeMemory(graph);
      EXPECT_LE(memory.none.peak_bytes, memory.peak_bytes) << model << " x " << accumulate;
      if (!absl::StartsWith(model, "mixtral")) {
        EXPECT_EQ(memory.none.peak_bytes, memory.peak_bytes) << model << " x " << accumulate;
      }
      // Each parameter and its gradient.
      int64_t least = 0;
      const std::vector<bool> pinned = PinnedStorages(graph);
      for (size_t s = 0; s < pinned.size(); ++s) least += pinned[s] ? graph.storages[s].bytes : 0;
      int64_t parameters = 0;
      for (const StorageRecord& s : graph.storages)
        parameters += s.origin == Origin::kParameter ? s.bytes : 0;
      EXPECT_GE(least, 2 * parameters) << model;
      EXPECT_GE(FindFloor(PlanProblem(graph)).bytes, least) << model;
    }
  }
}

class PlansOfModels : public GraphReport {
 protected:
  static constexpr char kModel[] = "gpt2:layers=6,width=32,heads=2,vocab=64,context=16 ";

  static Graph Traced() {
    return ValueOrThrow(TraceModel(ValueOrThrow(BuiltinConfig(
                                       "gpt2:layers=6,width=32,heads=2,vocab=64,context=16")),
                                   {}))
        .graph;
  }
  static std::string Flat(const std::string& text) {
    return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  }
  static const Json& PlanOf(const Json& report, const std::string& name) {
    for (const Json& plan : report.Find("plans")->array()) {
      if (plan.Find("name")->string() == name) return plan;
    }
    ADD_FAILURE() << "no plan " << name;
    return report;
  }
};

TEST_F(PlansOfModels, ArePricedByTheSimulator) {
  const Graph graph = Traced();
  const Json report =
      ReportOf(std::string(kModel) + "--plan=uniform:1,uniform:4,uniform:1000000000000");
  for (const auto& [name, length] : {std::pair("uniform:1", 1), std::pair("uniform:4", 4),
                                     std::pair("uniform:1000000000000", 6)}) {
    const PlanPrice price = ValueOrThrow(PricePlan(graph, PlanSegments(graph, length, false)));
    const Json& plan = PlanOf(report, name);
    EXPECT_EQ(plan.Find("peak")->integer(), price.peak_bytes) << name;
    EXPECT_EQ(plan.Find("saved")->integer(), price.saved_bytes) << name;
    EXPECT_EQ(plan.Find("extra_nodes")->integer(), price.extra_nodes) << name;
    // All three columns of what runs again.
    EXPECT_EQ(plan.Find("extra_cost")->number(),
              static_cast<double>(price.recompute.matmul + price.recompute.other +
                                  price.recompute.transcendental))
        << name;
  }
  // One segment, which is the last, is not recomputed.
  EXPECT_EQ(PlanOf(report, "uniform:1000000000000").Find("extra_nodes")->integer(), 0);
}

TEST_F(PlansOfModels, OfAllPlannersHaveARowEach) {
  const Json report = ReportOf(std::string(kModel) + "--plan=all --memory=80GB");
  std::set<std::string> names;
  for (const Json& plan : report.Find("plans")->array()) {
    EXPECT_TRUE(names.insert(plan.Find("name")->string()).second) << *names.rbegin();
    EXPECT_TRUE(plan.Find("fits")->boolean());
  }
  // Six blocks make 6, 3 and 2 segments; blocks of 4 and 5 make 2 as well.
  for (const char* name : {"none", "sqrt", "uniform:1", "uniform:2", "uniform:3"})
    EXPECT_EQ(names.count(name), 1u) << name;
  EXPECT_EQ(names.count("uniform:4"), 0u);
  const std::string text = Run(std::string(kModel) + "--plan=all --memory=80GB").out;
  // 80 GB less a reserve of 1 GiB are 78,926,258,176 bytes.
  EXPECT_EQ(names.count("chain:77076424KiB"), 1u);
  EXPECT_THAT(text, HasSubstr("\n  chain:78.92GB "));
  for (const std::string& name : names)
    EXPECT_THAT(text, HasSubstr("\n  " + PlanTitle(name) + " ")) << name;
}

TEST_F(PlansOfModels, SayWhereThereIsNothingToDo) {
  EXPECT_THAT(Run(std::string(kModel) + "--phase=forward --plan=sqrt,uniform:2").out,
              AllOf(HasSubstr("sqrt: no backward was recorded: nothing is kept"),
                    HasSubstr("uniform:2: no backward was recorded: nothing is kept")));
  // Without blocks it is planned over the values that all of forward goes through; the peak of so
  // small a net is its optimizer's.
  EXPECT_THAT(Run("two-layer --plan=uniform:2").out,
              HasSubstr("uniform:2: it does not pay, the peak is the same"));
}

TEST_F(PlansOfModels, AreRefusedAsUsageWhereTheyAreNone) {
  for (const char* flags : {"--plan=",
                            "--plan=,",
                            "--plan=sqrt,",
                            "--plan=sqr",
                            "--plan=uniform",
                            "--plan=uniform:0",
                            "--plan=uniform:x",
                            "--plan=none:1",
                            "--plan=fit",
                            "--plan=optimal:0",
                            "--plan=optimal:-3GB",
                            "--plan=selective:all",
                            "--plan=fit:3",
                            "--pareto-csv=- --json=-",
                            "--no-pareto --pareto-csv=x",
                            "--plan=uniform:-3",
                            "--plan=All",
                            "--cost=time",
                            "--cost=money",
                            "--timeline=- --json=-",
                            "--timeline=x --dot=x",
                            "--sweep='plan=all,none'",
                            "--sweep='plan=sqrt' --timeline=x"}) {
    const Outcome run = Run(absl::StrCat(kModel, flags));
    EXPECT_EQ(run.code, 2) << flags << run.out << run.err;
    EXPECT_THAT(run.err, StartsWith("graph-report: ")) << flags;
    EXPECT_EQ(run.out, "") << flags;
  }
}

TEST_F(PlansOfModels, HaveFilesThatBearTheirNames) {
  ASSERT_EQ(Run(std::string(kModel) + "--plan=uniform:2 --quiet --out=r").code, 0);
  EXPECT_TRUE(fs::exists(Path("r/plan-none.dot")));
  EXPECT_THAT(Bytes(Path("r/plan-uniform-2.dot")),
              AllOf(HasSubstr("plan uniform:2: peak "), HasSubstr("plan=\"dropped\"")));
  const std::string svg = Bytes(Path("r/memory.svg"));
  EXPECT_THAT(svg, AllOf(StartsWith("<svg"), HasSubstr("uniform:2: peak "), HasSubstr("nodes run"),
                         HasSubstr("none: peak ")));
  // The same by name, and nothing else on stdout.
  EXPECT_EQ(Run(std::string(kModel) + "--plan=uniform:2 --timeline=-").out, svg);
  EXPECT_EQ(Run(std::string(kModel) + "--plan=uniform:2 --timeline=x.svg").code, 0);
  EXPECT_EQ(Bytes(Path("x.svg")), svg);
}

TEST_F(PlansOfModels, AreManyOfWhichTheBestAreShown) {
  const Outcome run =
      Run(std::string(kModel) + "--attention=fused --plan=all --memory=80GB --out=r");
  ASSERT_EQ(run.code, 0) << run.err;
  // Six lines can be told apart: none, what was asked to fit, and the lowest.
  const std::string svg = Bytes(Path("r/memory.svg"));
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r/report.json"))));
  std::pair<int64_t, std::string> least{INT64_MAX, ""};
  for (const Json& plan : report.Find("plans")->array())
    least = std::min(least, {plan.Find("peak")->integer(), plan.Find("name")->string()});
  EXPECT_THAT(svg, AllOf(HasSubstr("none: peak "), HasSubstr("not drawn: "), HasSubstr(" more<")));
  EXPECT_THAT(svg, HasSubstr(PlanTitle(least.second) + ": peak "));
  EXPECT_THAT(run.out, HasSubstr("not shown: plan "));
  // What a plan says of itself stands there with many plans too.
  EXPECT_THAT(run.out, HasSubstr("selective:attention"));
  const std::string asked =
      Run(std::string(kModel) + "--attention=fused --plan=selective:attention --out=c").out;
  const Json one = ValueOrThrow(ParseJson(Bytes(Path("c/report.json"))));
  const std::string note = PlanOf(one, "selective:attention").Find("note")->string();
  EXPECT_THAT(Flat(asked), HasSubstr(note));
  EXPECT_THAT(Flat(run.out), HasSubstr(note));
}

// A layer of GPT-3 with dropout keeps 114 s·b·h bytes in 16 bits, of which 2 s·b·h are its boundary
// (Korthikanti et al., arXiv 2205.05198): a = 56. Its peak is of the states, whatever the plan.
TEST_F(PlansOfModels, SayInUnitsOfABoundaryWhereTheRootLoses) {
  const Outcome run = Run(
      "gpt3-175b:dropout=0.1 --seq=2048 --dtype=bf16 --attention=composed --json=r.json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(Flat(run.out), AllOf(HasSubstr("of L = 96 layers that keep a = 56 of tape"),
                                   HasSubstr("take 579 against 153 for the best, segments of 1 "),
                                   HasSubstr("1 plan changes nothing of the peak, 1.")));
}

TEST_F(PlansOfModels, AreReadBackFromTheFolder) {
  const Outcome wrote = Run(std::string(kModel) + "--plan=uniform:2 --out=r");
  ASSERT_EQ(wrote.code, 0) << wrote.err;
  EXPECT_THAT(wrote.out, HasSubstr("plan-uniform-2.{dot,txt,json}"));
  const Json report = ReportOf(std::string(kModel) +
                               "--plan=uniform:2,@r/plan-uniform-2.txt,@r/plan-uniform-2.json");
  const Json& made = PlanOf(report, "uniform:2");
  for (const char* name : {"@r/plan-uniform-2.txt", "@r/plan-uniform-2.json"}) {
    const Json& read = PlanOf(report, name);
    for (const char* key : {"peak", "saved", "extra_nodes"})
      EXPECT_EQ(read.Find(key)->integer(), made.Find(key)->integer()) << name << key;
    EXPECT_EQ(read.Find("extra_cost")->number(), made.Find("extra_cost")->number());
  }
  // Its own files bear its name, without what is none of a file's.
  ASSERT_EQ(Run(std::string(kModel) + "--plan=@r/plan-uniform-2.txt --quiet --out=s").code, 0);
  EXPECT_TRUE(fs::exists(Path("s/plan-r-plan-uniform-2.txt.json")));
  // Another record's, one that was changed, and none.
  const Outcome other = Run("mlp --plan=@r/plan-uniform-2.txt");
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, StartsWith("graph-report: r/plan-uniform-2.txt: plan text: line 2: the "
                                    "plan is of a graph with"));
  std::string text = Bytes(Path("r/plan-uniform-2.txt"));
  Write(Path("r/x.txt"), text.insert(text.find('\n', text.find("\nrun ") + 1) + 1, "run 3 x\n"));
  const Outcome changed = Run(std::string(kModel) + "--plan=@r/x.txt");
  EXPECT_EQ(changed.code, 3);
  EXPECT_THAT(changed.err, AllOf(HasSubstr("r/x.txt: plan text: line "), HasSubstr("not \"x\"")));
  EXPECT_EQ(Run(std::string(kModel) + "--plan=@r/none.txt").code, 3);
  EXPECT_EQ(Run(std::string(kModel) + "--plan=@").code, 2);
}

TEST_F(PlansOfModels, CostSecondsMeasuredHere) {
  const Outcome run =
      Run(std::string(kModel) + "--plan=uniform:2,optimal:1GB --cost=measured --json=r.json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("  extra time\n"),
                             HasSubstr("  extra time: of what runs again, where once through")));
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  const Json& plan = PlanOf(report, "uniform:2");
  EXPECT_EQ(plan.Find("cost_unit")->string(), "seconds");
  EXPECT_THAT(
      plan.Find("cost_source")->string(),
      StartsWith("measured: seconds, the least of 3 runs of each node on this machine's CPU"));
  // A hundred small nodes run again in less than a second.
  EXPECT_GT(plan.Find("extra_cost")->number(), 0);
  EXPECT_LT(plan.Find("extra_cost")->number(), 1);
  EXPECT_EQ(PlanOf(report, "none").Find("extra_cost")->number(), 0);
  EXPECT_THAT(Run(std::string(kModel) +
                  "--plan=uniform:2 --cost=measured --explain=plans.uniform:2.extra_cost")
                  .out,
              HasSubstr("on this machine's CPU"));
  // A file has the record and no values.
  SaveSmall("x.bin", "");
  const Outcome file = Run("x.bin --cost=measured --json=r.json");
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_THAT(
      PlanOf(ValueOrThrow(ParseJson(Bytes(Path("r.json")))), "none").Find("cost_source")->string(),
      HasSubstr("stand-ins"));
}

TEST_F(PlansOfModels, AreNotMeasuredWhereTheStepCannotRun) {
  const Outcome large = Run(std::string(kModel) + "--batch=100000000 --cost=measured");
  EXPECT_EQ(large.code, 2);
  EXPECT_THAT(large.err, AllOf(StartsWith("graph-report: --cost=measured: the step runs here"),
                               HasSubstr("at hand"), HasSubstr("--cost=flops")));
  const Outcome fit = Run(std::string(kModel) + "--cost=measured --fit=batch --memory=80GB");
  EXPECT_EQ(fit.code, 2);
  EXPECT_THAT(fit.err, HasSubstr("--fit tries others"));
}

TEST_F(PlansOfModels, CostTimeWhereTimeIsAsked) {
  const Json report =
      ReportOf(std::string(kModel) + "--plan=uniform:2 --hardware=h100 --cost=time");
  const Json& plan = PlanOf(report, "uniform:2");
  EXPECT_EQ(plan.Find("cost_unit")->string(), "seconds");
  const JsonArray& seconds = report.Find("time")->Find("plans")->array();
  const double longer = seconds[1].Find("seconds")->number() - seconds[0].Find("seconds")->number();
  EXPECT_GT(longer, 0);
  EXPECT_NEAR(plan.Find("extra_cost")->number(), longer,
              1e-12 * seconds[1].Find("seconds")->number() + 1e-15);
  const std::string text = Run(std::string(kModel) + "--plan=uniform:2 --hardware=h100").out;
  EXPECT_THAT(text, HasSubstr("fits\n"));
}

TEST_F(PlansOfModels, AreExplained) {
  for (const char* key : {"extra_cost", "cost_unit", "note", "answer", "optimal", "cheapest",
                          "bound", "bound_node", "best"}) {
    const Outcome run =
        Run(absl::StrCat(kModel, "--plan=uniform:2 --explain=plans.uniform:2.", key));
    EXPECT_EQ(run.code, 0) << key << run.err;
    EXPECT_THAT(run.out, AllOf(StartsWith(absl::StrCat("plans.uniform:2.", key, " = ")),
                               Not(HasSubstr("no such"))));
  }
}

TEST_F(PlansOfModels, AreRowsOfASweep) {
  const Json sweep = ReportOf(std::string(kModel) + "--sweep 'plan=none,uniform:2'");
  const Json report = ReportOf(std::string(kModel) + "--plan=uniform:2");
  EXPECT_EQ(sweep.Find("rows")->array()[1].Find("peak")->integer(),
            PlanOf(report, "uniform:2").Find("peak")->integer());
}

// One sequence of 8,192 on a device of 80 GB, AdamW; 8,030,261,248 parameters.
TEST_F(PlansOfModels, OfLlama3FitInBf16AndNotWithF32Moments) {
  const std::string run =
      "llama-3-8b --batch=1 --seq=8192 --memory=80GB --hardware=h100 "
      "--plan=none,sqrt,uniform:1,uniform:2,uniform:4,uniform:8,triangular,log,revolve:4,"
      "selective:attention,persistent:78GB,chain:78GB ";
  const Json fits = ReportOf(run + "--dtype=bf16");
  EXPECT_EQ(fits.Find("memory")->Find("states")->integer(), 8 * int64_t{8'030'261'248});
  EXPECT_FALSE(PlanOf(fits, "none").Find("fits")->boolean());
  const int64_t usable = fits.Find("verdict")->Find("usable")->integer();
  EXPECT_EQ(usable, 80'000'000'000 - (int64_t{1} << 30));
  const JsonArray& plans = fits.Find("plans")->array();
  const JsonArray& times = fits.Find("time")->Find("plans")->array();
  ASSERT_GE(plans.size(), times.size());
  const double once = times[0].Find("seconds")->number();
  int fitting = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double longer = times[i].Find("seconds")->number() / once;
    const bool fit = plans[i].Find("peak")->integer() <= usable;
    EXPECT_EQ(plans[i].Find("fits")->boolean(), fit);
    fitting += fit;
    // Each block at most once more: forward is a third of the contractions, its logits and the
    // update not run again.
    if (absl::StartsWith(plans[i].Find("name")->string(), "uniform")) {
      EXPECT_GT(longer, 1.0);
      EXPECT_LT(longer, 4.0 / 3);
    }
  }
  EXPECT_GE(fitting, 5);
  // The states alone are 12 bytes a parameter.
  const Outcome refused = Run(run + "--dtype=bf16-f32opt --check-fits --json=r.json");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("it does not fit"));
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  EXPECT_EQ(report.Find("memory")->Find("states")->integer(), 12 * int64_t{8'030'261'248});
  for (const Json& plan : report.Find("plans")->array())
    EXPECT_FALSE(plan.Find("fits")->boolean()) << plan.Find("name")->string();
  EXPECT_THAT(refused.out, HasSubstr("no batch and no plan"));
}

}  // namespace
}  // namespace tally
