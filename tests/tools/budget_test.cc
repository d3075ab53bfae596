// Budgets, ranks and verdicts of traced models.
#include <map>

#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/zero.h"
#include "tally/io/table.h"
#include "tally/nn/presets.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

FamilyConfig ConfigOf(const std::string& name) { return ValueOrThrow(BuiltinConfig(name)); }

Trace TraceOf(const std::string& name, const TraceOptions& options) {
  return ValueOrThrow(TraceModel(ConfigOf(name), options));
}

TEST(ModelBudget, AddsUpToThePeakOfEveryModelDTypeAndPlan) {
  for (const char* name : {"mlp", "cruncher:64,4", "gpt2:layers=2,width=64,heads=2,vocab=100",
                           "llama-3-8b:layers=2,width=64,heads=4,kv_heads=2,inner=96,vocab=100",
                           "vit-b-16:layers=2,width=48,heads=2",
                           "mixtral-8x7b:layers=2,width=32,heads=2,kv_heads=1,inner=48,vocab=50"}) {
    for (const char* policy : {"f32", "mixed-f32grad"}) {
      const Graph graph =
          TraceOf(name, {.batch = 2, .policy = *FindPolicy(policy), .accumulate = 2}).graph;
      const Budget recorded = BudgetOf(graph);
      EXPECT_EQ(recorded.parts.total(), AnalyzeMemory(graph).peak_bytes) << name;
      for (const Plan& plan : {PlanNone(graph), PlanSqrt(graph)}) {
        const Budget budget = BudgetOf(graph, plan);
        EXPECT_EQ(budget.parts.total(), PriceValidPlan(graph, plan).peak_bytes)
            << name << ' ' << plan.name;
        int64_t lines = 0;
        for (const BudgetLine& line : budget.lines) lines += line.bytes;
        EXPECT_EQ(lines, budget.peak_bytes) << name;
      }
      // On one rank, and without ZeRO, nothing changes.
      EXPECT_EQ(ApplyZero(graph, {.ranks = 8}).peak_bytes, recorded.peak_bytes) << name;
      const int64_t three = ApplyZero(graph, {.ranks = 8, .stage = 3}).peak_bytes;
      EXPECT_LT(three, recorded.peak_bytes) << name;
    }
  }
}

TEST(ModelBudget, OfGpt2XlShapeIsFourTimesItsParameters) {
  const ModelStates states = StatesOf(TraceOf("cs336-gpt2-xl", {.sequence = 16}).graph);
  EXPECT_EQ(states.elements, 2'127'057'600);
  EXPECT_EQ(states.parts[BudgetPart::kParameters], 8'508'230'400);
  EXPECT_EQ(states.total(), 34'032'921'600);
  // The same bytes in both units: over 1e9 and over 2^30.
  EXPECT_EQ(BytesText(states.parts[BudgetPart::kParameters]), "8.508 GB = 7.924 GiB");
}

TEST(ModelBudget, OfAGpt3FeedForwardMatrixInF32) {
  // 12,288 by 49,152 in f32.
  const Graph graph = TraceOf("mlp:12288,49152", {.batch = 1}).graph;
  const ModelStates states = StatesOf(graph);
  EXPECT_EQ(states.parts[BudgetPart::kParameters], 2'415'919'104 + 4 * 49'152);
}

TEST(ModelBudget, OfMicroBatchesHoldsTheActivationsOfOne) {
  const std::string model = "gpt2:layers=2,width=64,heads=2,vocab=100,context=32";
  const Graph whole = TraceOf(model, {.batch = 8}).graph,
              parts = TraceOf(model, {.batch = 2, .accumulate = 4}).graph,
              more = TraceOf(model, {.batch = 3, .accumulate = 4}).graph,
              nine = TraceOf(model, {.batch = 9}).graph;
  const BatchSplit of_whole = ValueOrThrow(SplitByBatch(whole, BudgetOf(whole), nine)),
                   of_parts = ValueOrThrow(SplitByBatch(parts, BudgetOf(parts), more));
  EXPECT_EQ(of_whole.growing[BudgetPart::kSaved], 4 * of_parts.growing[BudgetPart::kSaved]);
  // One row of positions, made once a micro-batch: what does not grow stays as it is.
  EXPECT_EQ(of_whole.fixed[BudgetPart::kSaved], of_parts.fixed[BudgetPart::kSaved]);
  EXPECT_EQ(StatesOf(whole).total(), StatesOf(parts).total());
}

TEST(ModelBudget, IsTheSameAtTwoBatchesWhereItDoesNotGrow) {
  // Batches so large that the peak is where forward ends at both.
  const std::string model = "llama-3-8b:layers=2,width=64,heads=4,kv_heads=2,inner=96,vocab=100";
  std::map<int64_t, Graph> at;
  for (int64_t batch : {1, 40, 41, 60, 61})
    at.emplace(batch, TraceOf(model, {.batch = batch, .sequence = 16}).graph);
  const Budget forty = BudgetOf(at.at(40)), sixty = BudgetOf(at.at(60));
  ASSERT_EQ(forty.peak_node, sixty.peak_node);
  const BatchSplit less = ValueOrThrow(SplitByBatch(at.at(40), forty, at.at(41))),
                   more = ValueOrThrow(SplitByBatch(at.at(60), sixty, at.at(61)));
  EXPECT_EQ(less.fixed.bytes, more.fixed.bytes);
  EXPECT_EQ(less.growth, more.growth);
  EXPECT_EQ(more.growing.total(), 60 * more.growth);
  EXPECT_EQ(sixty.peak_bytes - forty.peak_bytes, 20 * less.growth);
  EXPECT_EQ(StatesOf(at.at(1)).parts.bytes, StatesOf(at.at(60)).parts.bytes);
}

class Verdicts : public GraphReport {
 protected:
  static std::string Flat(const std::string& text) {
    std::string flat;
    for (char c : text) {
      const bool space = c == ' ' || c == '\n';
      if (!space || (!flat.empty() && flat.back() != ' ')) flat += space ? ' ' : c;
    }
    return flat;
  }
};

TEST_F(Verdicts, FindTheBatchThatTracingEveryOneDoes) {
  const std::string model = "gpt2:layers=4,width=32,heads=2,vocab=64,context=16";
  const int64_t memory = 2'000'000;
  const Json report = ReportOf(model + " --memory=2MB --reserve=0 --fit=batch");
  const JsonArray& answers = report.Find("verdict")->Find("largest")->array();
  ASSERT_EQ(answers.size(), 3u);
  for (const Json& answer : answers) {
    const std::string plan = answer.Find("name")->string();
    int64_t largest = 0;
    while (true) {
      const Graph graph = TraceOf(model, {.batch = largest + 1}).graph;
      const int64_t peak = plan == "batch recorded" ? AnalyzeMemory(graph).peak_bytes
                           : plan == "batch none"
                               ? PriceValidPlan(graph, PlanNone(graph)).peak_bytes
                               : PriceValidPlan(graph, PlanSqrt(graph)).peak_bytes;
      if (peak > memory) break;
      ++largest;
    }
    EXPECT_GT(largest, 1) << plan;
    EXPECT_EQ(answer.Find("largest")->integer(), largest) << plan;
    EXPECT_EQ(answer.Find("over")->Find("size")->integer(), largest + 1) << plan;
  }
}

TEST_F(Verdicts, OfLlama2DifferByRecipe) {
  const std::string run = "llama-2-7b --batch=4 --seq=4096 --hardware=h100 --json=r.json ";
  // 6,738,415,616 parameters of 8, 12 and 16 bytes: bf16, bf16-f32opt and mixed.
  const auto verdict = [&](const std::string& dtype, int bytes) {
    const Outcome told = Run(absl::StrCat(run, "--dtype=", dtype));
    const Json report = ValueOrThrow(ParseJson(Bytes(Path("r.json"))));
    EXPECT_EQ(report.Find("run")->Find("dtype")->string(), dtype);
    EXPECT_EQ(report.Find("memory")->Find("states")->integer(), bytes * 6'738'415'616);
    EXPECT_EQ(report.Find("memory")->Find("recipe_name")->string(), dtype + " under adamw");
    EXPECT_FALSE(report.Find("verdict")->Find("fits")->boolean());
    return Flat(told.out);
  };
  // With a batch of 1 and a plan it fits; with more ranks too; not with this recipe at all.
  EXPECT_THAT(verdict("bf16", 8),
              AllOf(HasSubstr("fits not as asked, but under plan sqrt"),
                    HasSubstr("model states are 53.91 GB"), HasSubstr("--batch=")));
  EXPECT_THAT(verdict("bf16-f32opt", 12),
              AllOf(HasSubstr("fits NO"), HasSubstr("model states are 80.86 GB"),
                    HasSubstr("--gpus=2 --zero=1")));
  EXPECT_THAT(verdict("mixed", 16),
              AllOf(HasSubstr("fits NO"), HasSubstr("model states are 107.8 GB"),
                    HasSubstr("no batch and no plan makes it fit")));
}

TEST_F(Verdicts, RemediesAreTrue) {
  const std::string run = "llama-2-7b --seq=4096 --hardware=h100";
  const Json report = ReportOf(run + " --batch=4 --dtype=bf16-f32opt");
  const JsonArray& remedies = report.Find("verdict")->Find("remedies")->array();
  EXPECT_GE(remedies.size(), 2u);
  for (const Json& remedy : remedies) {
    std::string flags = remedy.Find("flags")->string();
    if (flags.find("--batch") == std::string::npos) flags += " --batch=4";
    if (flags.find("--dtype") == std::string::npos) flags += " --dtype=bf16-f32opt";
    const Outcome taken = Run(absl::StrCat(run, " ", flags, " --check-fits --json=-"));
    EXPECT_EQ(taken.code, 0) << flags << taken.err;
    const Json again = ValueOrThrow(ParseJson(taken.out));
    int64_t asked = 0;
    for (const Json& c : again.Find("verdict")->Find("cases")->array()) {
      if (c.Find("asked")->boolean()) asked = c.Find("peak")->integer();
    }
    EXPECT_EQ(asked, remedy.Find("peak")->integer()) << flags;
  }
}

TEST_F(Verdicts, ExitByTheCheckThatWasAskedFor) {
  const std::string model = "mlp:64,64 --quiet --json=/dev/null --check-fits --reserve=0 ";
  // f32: 64·64 + 64 weights of 16 bytes, and less than another 16 kB besides.
  EXPECT_EQ(Run(model + "--memory=100XB").code, 2);
  EXPECT_EQ(Run(model + "--memory=100KB").code, 0);
  const Outcome small = Run(model + "--memory=60KB");
  EXPECT_EQ(small.code, 1);
  EXPECT_THAT(small.err, HasSubstr("does not fit"));
}

TEST_F(Verdicts, SayWhatIsMissing) {
  const Outcome run = Run("mlp --json=/dev/null");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith("fits   not known: say --hardware=h100 or --memory=80GB"));
  const Json report = ReportOf("mlp");
  EXPECT_TRUE(report.Find("verdict")->Find("fits")->is(Json::Kind::kNull));
  SaveSmall("graph.bin", "");
  EXPECT_EQ(Run("graph.bin --memory=1GB --reserve=0 --quiet --json=r.json").code, 0);
  EXPECT_THAT(Run("graph.bin --fit=batch --memory=1GB --reserve=0").err,
              HasSubstr("a recorded graph alone"));
}

TEST_F(Verdicts, FitAFileThatSaysItsModel) {
  SaveSmall("with.bin", SmallConfig());
  const std::string fit = " --fit=batch --memory=1MB --reserve=0";
  const auto largest = [&](const std::string& model) {
    return ReportOf(model + fit).Find("verdict")->Find("largest")->Dump();
  };
  EXPECT_THAT(largest("with.bin"), HasSubstr("\"fits\""));
  EXPECT_EQ(largest("with.bin"), largest("mlp:16,64,16"));
}

TEST_F(Verdicts, RefuseFlagsThatSayNothing) {
  const std::pair<const char*, const char*> cases[] = {
      {"gpt2 --memory=0", "nothing fits in that"},
      {"gpt2 --memory=-1GB", "--memory"},
      {"gpt2 --memory=nan", "--memory"},
      {"gpt2 --memory=99999999999TB", "too large"},
      {"gpt2 --memory=1GB", "leaves nothing"},
      {"gpt2 --reserve=1GB", "--memory=80GB"},
      {"gpt2 --check-fits", "--memory=80GB"},
      {"gpt2 --fit=batch", "--memory=80GB"},
      {"gpt2 --memory=8GB --fit=layers", "wanted batch or seq"},
      {"mlp --memory=8GB --fit=seq", "takes no sequences"},
      {"gpt2 --memory=8GB --fit=seq --documents=5,3", "--documents"},
      {"gpt2 --zero=2", "--gpus"},
      {"gpt2 --gpus=4 --zero=4", "--zero"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.code, 2) << arguments << run.out;
    EXPECT_THAT(run.err, HasSubstr(message)) << arguments;
  }
}

TEST_F(Verdicts, ProveTheLargestSequence) {
  const Outcome run =
      Run("gpt2:layers=2,width=64,heads=2,vocab=100,context=512 --memory=6MB --reserve=0 --fit=seq "
          "--plan=none --json=-");
  ASSERT_EQ(run.code, 0) << run.err;
  const Json json = ValueOrThrow(ParseJson(run.out));
  const Json& found = json.Find("verdict")->Find("largest")->array()[0];
  const int64_t largest = found.Find("largest")->integer();
  EXPECT_GT(largest, 1);
  EXPECT_LT(largest, 512);
  EXPECT_LE(found.Find("fits")->Find("peak")->integer(), 6'000'000);
  EXPECT_GT(found.Find("over")->Find("peak")->integer(), 6'000'000);
  EXPECT_EQ(found.Find("over")->Find("size")->integer(), largest + 1);
  const Outcome none = Run("gpt2 --memory=1GB --reserve=0 --fit=batch --json=/dev/null");
  EXPECT_THAT(Flat(none.out), HasSubstr("none; even batch 1"));
  const Outcome whole = Run("gpt2 --memory=80GB --fit=seq --json=/dev/null");
  EXPECT_THAT(Flat(whole.out), HasSubstr("it is the model's context"));
}

TEST_F(Verdicts, ExplainTheirKeysByPartsThatAddUp) {
  const std::string run =
      "gpt2:layers=2,width=64,heads=2,vocab=100,context=32 --batch=2 --accumulate=2 --gpus=3 "
      "--zero=3 --memory=300KB --reserve=0 ";
  for (const char* key :
       {"memory.moments", "memory.states", "memory.budget.parameters.bytes",
        "memory.budget.saved.bytes", "memory.budget.transient.bytes", "memory.budget.saved.growing",
        "memory.lines.0.bytes", "memory.rank.states", "memory.rank.padding",
        "memory.rank.gradients", "memory.rank.peak", "memory.rank.sent",
        "memory.rank.rows.0.padding", "memory.rank.collectives.0.sent",
        "memory.bytes_per_parameter", "verdict.fits", "verdict.usable", "verdict.cases.sqrt.peak",
        "plans.sqrt.fits"}) {
    const Outcome explained = Run(absl::StrCat(run, "--explain=", key));
    EXPECT_EQ(explained.code, 0) << key << explained.err;
    EXPECT_THAT(explained.out, AllOf(StartsWith(std::string(key, 6)), HasSubstr("\n  "))) << key;
  }
}

}  // namespace
}  // namespace tally
