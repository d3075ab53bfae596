// graph-report with plans held to bytes: three answers, the front, and what bytes buy.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/plan_front.h"
#include "tally/io/plan_name.h"
#include "tally/io/table.h"
#include "tally/nn/presets.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PlansWithin : public GraphReport {
 protected:
  static constexpr char kModel[] = "gpt2:layers=4,width=32,heads=2,vocab=64,context=64 --batch=4 ";

  static const Graph& Traced() {
    static const auto* const graph = new Graph(
        ValueOrThrow(TraceModel(ValueOrThrow(BuiltinConfig(
                                    "gpt2:layers=4,width=32,heads=2,vocab=64,context=64")),
                                {.batch = 4}))
            .graph);
    return *graph;
  }
  static const PlanFront& Front() {
    static const auto* const front = new PlanFront(MakePlanFront(Traced(), FlopCosts(Traced())));
    return *front;
  }
  static const Json& Last(const Json& report) { return report.Find("plans")->array().back(); }
  static std::string Flat(const std::string& text) {
    return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  }
};

TEST_F(PlansWithin, AreThePlanTheProofAndTheGap) {
  const int64_t none = Front().none().price.peak_bytes, floor = Front().floor.bytes;
  const int64_t least = Front().points[Front().front[0]].price.peak_bytes;
  ASSERT_LT(least, none);
  // A plan: the cheapest of the front.
  const std::string budget = absl::StrCat("optimal:", (least + none) / 2, "B");
  const Outcome found = Run(absl::StrCat(kModel, "--plan=", budget, " --json=r.json"));
  EXPECT_EQ(found.code, 0) << found.err;
  const Json plan = Last(ValueOrThrow(ParseJson(Bytes(Path("r.json")))));
  EXPECT_EQ(plan.Find("answer")->string(), "plan");
  EXPECT_LE(plan.Find("peak")->integer(), (least + none) / 2);
  const auto optimal = [](int64_t bytes) {
    const NodeCosts costs = FlopCosts(Traced());
    return Optimal(MakePlanFront(Traced(), costs, {.asked = {bytes}}), bytes);
  };
  const PlanAnswer answer = optimal((least + none) / 2);
  EXPECT_EQ(plan.Find("extra_cost")->number(),
            ExtraCost(Traced(), answer.plan, FlopCosts(Traced())));
  EXPECT_EQ(plan.Find("optimal")->boolean(), answer.optimal);
  EXPECT_LE(plan.Find("cheapest")->number(), plan.Find("extra_cost")->number());
  // The proof: one byte below the floor.
  const Outcome proven = Run(absl::StrCat(kModel, "--plan=optimal:", floor - 1, "B --json=r.json"));
  EXPECT_EQ(proven.code, 1);
  EXPECT_THAT(proven.err, AllOf(StartsWith("graph-report: --plan=optimal:"),
                                HasSubstr("proven: no plan has a peak below"),
                                HasSubstr(absl::StrCat("node ", Front().floor.node, " ("))));
  EXPECT_THAT(Flat(proven.out), HasSubstr("proven: no plan has a peak below"));
  const Json refused = Last(ValueOrThrow(ParseJson(Bytes(Path("r.json")))));
  EXPECT_EQ(refused.Find("answer")->string(), "infeasible");
  EXPECT_EQ(refused.Find("bound")->integer(), floor);
  EXPECT_TRUE(refused.Find("peak")->is(Json::Kind::kNull));
  // The gap, where there is one.
  const PlanAnswer missing = optimal(floor);
  if (missing.kind == PlanAnswer::kPlan) return;
  const Outcome gap = Run(absl::StrCat(kModel, "--plan=optimal:", floor, "B --json=r.json"));
  EXPECT_EQ(gap.code, 1);
  EXPECT_THAT(gap.err, HasSubstr("none was found and none is ruled out"));
  EXPECT_EQ(Last(ValueOrThrow(ParseJson(Bytes(Path("r.json"))))).Find("best")->integer(),
            missing.best);
  EXPECT_GT(missing.best, floor);
}

// A planner that does not find one speaks for itself alone; what another plan of the report reaches
// stands beside it, and the gap is from the lower of the two.
TEST_F(PlansWithin, SayWhoseTheLeastPeakIs) {
  const Graph& graph = Traced();
  const int64_t floor = Front().floor.bytes;
  const int64_t least = Front().points[Front().front[0]].price.peak_bytes;
  const PlanAnswer chain =
      ValueOrThrow(PlanChain(graph, FlopCosts(graph), floor, ChainMoves::kPersistent));
  ASSERT_EQ(chain.kind, PlanAnswer::kNotFound);
  ASSERT_LT(least, chain.best);
  const Outcome alone = Run(absl::StrCat(kModel, "--plan=persistent:", floor, "B"));
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(Flat(alone.out),
              AllOf(HasSubstr(absl::StrCat("the least peak that this planner reached is ",
                                           BytesText(chain.best), "; proven")),
                    HasSubstr(absl::StrCat("a gap of ", BytesText(chain.best - floor), ";"))));
  const Outcome beside =
      Run(absl::StrCat(kModel, "--plan=optimal:", least, "B,persistent:", floor, "B"));
  EXPECT_THAT(Flat(beside.out),
              AllOf(HasSubstr(absl::StrCat(" has ", BytesText(least), "; proven")),
                    HasSubstr(absl::StrCat("a gap of ", BytesText(least - floor), ";"))));
}

TEST_F(PlansWithin, FitTheDevice) {
  const int64_t none = Front().none().price.peak_bytes;
  const int64_t least = Front().points[Front().front[0]].price.peak_bytes;
  const int64_t memory = (3 * least + none) / 4;
  const std::string device = absl::StrCat("--reserve=0 --memory=", memory, "B ");
  const Outcome fits = Run(absl::StrCat(kModel, device, "--plan=fit --check-fits --json=r.json"));
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_THAT(Flat(fits.out), HasSubstr("to spare under plan fit"));
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  EXPECT_LE(Last(report).Find("peak")->integer(), memory);
  EXPECT_THAT(Last(report).Find("note")->string(), HasSubstr("of the front"));
  EXPECT_EQ(report.Find("verdict")->Find("fits_as")->string(), "fit");
  // What is to spare is so under the plan that it says, though another asked for takes less.
  const Outcome beside = Run(absl::StrCat(kModel, device, "--plan=uniform:1,fit"));
  EXPECT_THAT(Flat(beside.out),
              HasSubstr(absl::StrCat(BytesText(memory - Last(report).Find("peak")->integer()),
                                     " to spare under plan fit")));
  const Outcome never = Run(absl::StrCat(kModel, "--reserve=0 --memory=1000B --plan=fit --quiet"));
  EXPECT_EQ(never.code, 1);
  EXPECT_THAT(never.err, HasSubstr("fit: no plan within 1,000 B; proven"));
}

// Of AdamW's states, 16 bytes a parameter, each of 8 ranks has an eighth of what its stage splits.
TEST_F(PlansWithin, FitARankThatHoldsItsPartOfTheStates) {
  const int64_t none = Front().none().price.peak_bytes;
  const int64_t least = Front().points[Front().front[0]].price.peak_bytes;
  const auto flags = [&](int64_t memory, int stage) {
    return absl::StrCat(kModel, "--reserve=0 --plan=fit --json=r.json --memory=", memory, "B ",
                        stage > 0 ? absl::StrCat("--gpus=8 --check-fits --zero=", stage) : "");
  };
  const auto cost_of = [&](int64_t memory, int stage) {
    const Outcome run = Run(flags(memory, stage));
    EXPECT_EQ(run.code, 0) << stage << run.err;
    const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
    EXPECT_TRUE(Last(report).Find("fits")->boolean());
    const JsonArray& cases = report.Find("verdict")->Find("cases")->array();
    EXPECT_LE(cases.back().Find("peak")->integer(), memory);
    if (stage > 0) {
      EXPECT_THAT(Last(report).Find("note")->string(), HasSubstr("a rank's peak under it is"));
    }
    return Last(report).Find("extra_cost")->number();
  };
  // The room that the states leave spares runs.
  const int64_t memory = (3 * least + none) / 4;
  const double alone = cost_of(memory, 0);
  EXPECT_LT(cost_of(memory, 2), alone);
  // What is too little for one device whatever the plan can do for a rank.
  EXPECT_GT(cost_of(Front().floor.bytes - 1, 3), 0);
  const Outcome never = Run(flags(1000, 3));
  EXPECT_EQ(never.code, 1);
  EXPECT_THAT(never.err, HasSubstr("proven: under no plan is a rank's peak below"));
}

TEST_F(PlansWithin, MakeAFrontOfWhichEachPointIsAPlan) {
  const Outcome run = Run(std::string(kModel) + "--pareto --json=r.json --pareto-csv=f.csv");
  ASSERT_EQ(run.code, 0) << run.err;
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  const Json& front = *report.Find("front");
  EXPECT_EQ(front.Find("floor")->integer(), Front().floor.bytes);
  const JsonArray& points = front.Find("points")->array();
  ASSERT_GE(points.size(), 4u);
  const std::vector<std::string> lines = absl::StrSplit(Bytes(Path("f.csv")), '\n');
  ASSERT_EQ(lines.size(), points.size() + 2);  // a head, and nothing after the last end
  std::vector<std::string> names;
  for (size_t i = 0; i < points.size(); ++i) {
    const std::vector<std::string> cells = absl::StrSplit(lines[i + 1], ',');
    ASSERT_EQ(cells.size(), 10u);
    EXPECT_EQ(cells[0], points[i].Find("name")->string());
    EXPECT_EQ(cells[1], absl::StrCat(points[i].Find("peak")->integer()));
    EXPECT_GE(points[i].Find("peak")->integer(), Front().floor.bytes);
    names.push_back(cells[0]);
    if (i == 0) continue;
    EXPECT_GT(points[i].Find("peak")->integer(), points[i - 1].Find("peak")->integer());
    EXPECT_LT(points[i].Find("extra_cost")->number(), points[i - 1].Find("extra_cost")->number());
  }
  EXPECT_EQ(points.back().Find("name")->string(), "none");
  for (const std::string& name : names) EXPECT_THAT(run.out, HasSubstr("\n  " + name + " "));
  // In the folder as well.
  ASSERT_EQ(Run(std::string(kModel) + "--pareto --quiet --out=r").code, 0);
  EXPECT_EQ(Bytes(Path("r/pareto.csv")), Bytes(Path("f.csv")));
  // The next report in the same folder keeps none of these.
  std::ofstream(Path("r/front-99.txt")) << "of another";
  std::ofstream(Path("r/notes.txt")) << "mine";
  ASSERT_EQ(Run(std::string(kModel) + "--plan=none --out=r").code, 0);
  EXPECT_FALSE(std::filesystem::exists(Path("r/front-99.txt")));
  EXPECT_FALSE(std::filesystem::exists(Path("r/pareto.csv")));
  EXPECT_EQ(Bytes(Path("r/notes.txt")), "mine");
}

// What a report prints beside its front is never better than it, whichever planner made it; and
// what no name makes again is a file.
TEST_F(PlansWithin, MakeAFrontThatNoPlanOfTheReportBeats) {
  const Outcome run =
      Run(std::string(kModel) + "--plan=all,mincut:40kB,mincut:70kB --pareto --quiet --out=r");
  ASSERT_EQ(run.code, 0) << run.err;
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r/report.json"))));
  const JsonArray& points = report.Find("front")->Find("points")->array();
  for (const Json& plan : report.Find("plans")->array()) {
    EXPECT_TRUE(std::any_of(points.begin(), points.end(), [&](const Json& point) {
      return point.Find("peak")->integer() <= plan.Find("peak")->integer() &&
             point.Find("extra_cost")->number() <= plan.Find("extra_cost")->number();
    })) << plan.Find("name")->string();
  }
  int files = 0;
  for (const Json& point : points) {
    if (point.Find("file")->is(Json::Kind::kNull) || ++files > 2) continue;
    const std::string file = point.Find("file")->string();
    EXPECT_EQ(file, point.Find("name")->string() + ".txt");
    const Json again = ReportOf(absl::StrCat(kModel, "--plan=@r/", file));
    EXPECT_EQ(*Last(again).Find("peak"), *point.Find("peak")) << file;
    EXPECT_EQ(*Last(again).Find("extra_cost"), *point.Find("extra_cost")) << file;
    EXPECT_EQ(*Last(again).Find("extra_nodes"), *point.Find("extra_nodes")) << file;
  }
  EXPECT_GT(files, 0);
}

TEST_F(PlansWithin, TellEveryByteWhereRoundingHidesTheGap) {
  const int64_t floor = Front().floor.bytes;
  const Outcome run = Run(absl::StrCat(kModel, "--quiet --plan=optimal:", floor - 1, "B"));
  EXPECT_THAT(run.err, AllOf(HasSubstr(ToGrouped(floor - 1) + " B"),
                             HasSubstr(ToGrouped(floor) + " B"), HasSubstr("that is 1 B more")));
}

TEST_F(PlansWithin, HaveNoPeakWhereThereIsNone) {
  const Outcome run =
      Run(std::string(kModel) + "--reserve=0 --memory=1000B --plan=fit --json=r.json");
  EXPECT_EQ(run.code, 1);
  const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
  const Json& fit = report.Find("verdict")->Find("cases")->array().back();
  EXPECT_EQ(fit.Find("name")->string(), "fit");
  EXPECT_TRUE(fit.Find("peak")->is(Json::Kind::kNull));
  EXPECT_THAT(Flat(run.out), HasSubstr("no plan fit; usable 1,000 B"));
  EXPECT_THAT(Flat(run.out), HasSubstr("parameters and optimizer state alone, which live all the "
                                       "time, are "));
}

TEST_F(PlansWithin, SayWhatTheirBytesBuy) {
  const std::string text = Run(std::string(kModel) + "--plan=none,uniform:2 --worth --out=r").out;
  EXPECT_THAT(text, AllOf(HasSubstr("What each kept byte buys"), HasSubstr("plan uniform:2:"),
                          HasSubstr("FLOPs/B")));
}

TEST_F(PlansWithin, ExplainTheFront) {
  for (const char* key : {"floor", "floor_node", "planned", "complete", "points.none.peak",
                          "points.none.least_cost", "points.none.extra_cost"}) {
    const Outcome run = Run(absl::StrCat(kModel, "--pareto --explain=front.", key));
    EXPECT_EQ(run.code, 0) << key << run.err;
    EXPECT_GT(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  }
  EXPECT_THAT(Run(std::string(kModel) + "--explain=front").out, HasSubstr("--pareto"));
}

}  // namespace
}  // namespace tally
