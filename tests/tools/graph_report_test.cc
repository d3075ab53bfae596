// graph-report as a user runs it: figures and files.
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tally/io/graph_json.h"
#include "tally/io/table.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// "flops.forward.matmul" of a report; members only.
Count Figure(const Json& report, const std::string& path) {
  const Json* at = &report;
  for (absl::string_view part : absl::StrSplit(path, '.')) {
    at = at->Find(part);
    if (at == nullptr) {
      ADD_FAILURE() << "no key " << path;
      return -1;
    }
  }
  Count value = -1;
  EXPECT_TRUE(at->ToCount(&value)) << path;
  return value;
}

std::map<std::string, Count> Terms(const Json& report) {
  std::map<std::string, Count> terms;
  for (const Json& term : report.Find("proof")->Find("reconciliation")->array()) {
    Count flops = 0;
    term.Find("flops")->ToCount(&flops);
    terms[term.Find("term")->string()] = flops;
  }
  return terms;
}

TEST_F(GraphReport, SplitsTheStepOfGpt2AsPublished) {
  const Json report = ReportOf("gpt2 --batch=1 --seq=1024");
  EXPECT_EQ(Figure(report, "model.parameters"), 124439808);
  EXPECT_EQ(Figure(report, "flops.forward.matmul"), 291648307200);
  EXPECT_EQ(Figure(report, "flops.forward.weight_matmul"), 252993601536);
  EXPECT_EQ(Figure(report, "flops.forward.activation_matmul"), 38654705664);
  EXPECT_EQ(Figure(report, "flops.backward.matmul"), 583296614400);
  EXPECT_EQ(Figure(report, "flops.backward.weight_grad"), 252993601536);
  EXPECT_EQ(Figure(report, "flops.backward.input_grad"), 330303012864);
  EXPECT_EQ(Figure(report, "flops.model"), 874944921600);
  EXPECT_TRUE(report.Find("proof")->Find("holds")->boolean());
}

std::string Keys(const Json& object) {
  std::string keys;
  for (const auto& [key, value] : object.object()) absl::StrAppend(&keys, key, " ");
  return keys;
}

TEST_F(GraphReport, HasTheKeysOfItsSchemaInOrder) {
  const Json report = ReportOf("mlp");
  EXPECT_EQ(report.Find("schema")->string(), "tally.report/1");
  EXPECT_EQ(Keys(report), "schema model run flops proof memory rules plans front time measured verdict ");
  EXPECT_EQ(Keys(*report.Find("model")),
            "name source format family parameters parameters_active parameters_trained "
            "parameters_embedding parameters_matmul tied ");
  EXPECT_EQ(Keys(*report.Find("run")), "phase batch sequence tokens dtype optimizer ");
  const Json& flops = *report.Find("flops");
  EXPECT_EQ(Keys(flops), "forward backward recompute optimizer model hardware ");
  EXPECT_EQ(Keys(*flops.Find("forward")),
            "matmul weight_matmul activation_matmul other transcendental ");
  EXPECT_EQ(Keys(*flops.Find("backward")), "matmul input_grad weight_grad other transcendental ");
  EXPECT_EQ(Keys(*report.Find("proof")), "holds parameters reconciliation polynomials ");
  EXPECT_EQ(Keys(report.Find("proof")->Find("parameters")->array()[0]),
            "name numel rows forward input_grad weight_grad reason ");
  EXPECT_EQ(Keys(*report.Find("memory")),
            "parameters gradients optimizer inputs saved saved_viewed saved_inputs workspace peak "
            "peak_node at_peak recipe recipe_name bytes_per_parameter moments master states budget "
            "lines growth rank ");
  EXPECT_EQ(Keys(report.Find("plans")->array()[0]),
            "name peak saved recompute_flops extra_nodes ratio_peak ratio_flops fits extra_cost "
            "cost_unit "
            "cost_source note answer optimal cheapest bound bound_node best ");
}

TEST_F(GraphReport, CountsSavedBytesOfTheMlpOnce) {
  // x 8·16, relu's output 8·64 (its gradient and the next layer read that one), logits 8·16, all
  // f32; logsumexp 8·4; targets 8·8.
  EXPECT_EQ(Figure(ReportOf("mlp:16,64,16 --batch=8"), "memory.saved"),
            4 * (8 * 16 + 8 * 64 + 8 * 16) + 8 * 4 + 8 * 8);
}

TEST_F(GraphReport, ReconcilesGpt2With6NDTermByTerm) {
  const std::map<std::string, Count> terms = Terms(ReportOf("gpt2 --batch=1 --seq=1024"));
  EXPECT_EQ(terms.at("6ND"), Count(6) * 124439808 * 1024);
  EXPECT_EQ(terms.at("activation_contractions"), 115964116992);
  EXPECT_EQ(terms.at("lookup_tables"), -Count(6) * 1024 * 768 * 1024);
  EXPECT_EQ(terms.at("elementwise_parameters"), -745537536);
  EXPECT_EQ(terms.at("difference"), 0);
}

TEST_F(GraphReport, CountsFourBytesOfEachAndEightOfAdamWAParameter) {
  const Json report = ReportOf("gpt2");
  EXPECT_EQ(Figure(report, "memory.parameters"), 4 * 124439808);
  EXPECT_EQ(Figure(report, "memory.gradients"), 4 * 124439808);
  EXPECT_EQ(Figure(report, "memory.optimizer"), 8 * 124439808);
  EXPECT_THAT(report.Find("memory")->Find("recipe")->string(), StartsWith("16 bytes a parameter"));
}

TEST_F(GraphReport, ListsWhatLivesAtThePeakDownToTheByte) {
  const Json report = ReportOf("gpt2:layers=2,width=64,heads=2,vocab=100,context=32");
  Count sum = 0;
  for (const Json& live : report.Find("memory")->Find("at_peak")->array())
    sum += live.Find("bytes")->integer();
  EXPECT_EQ(sum, Figure(report, "memory.peak"));
}

TEST_F(GraphReport, PrintsEveryTermOfTheReconciliation) {
  const Outcome run = Run("gpt2");
  for (const char* text : {"6·124,439,808·1,024", "764,558,180,352", "+ 115,964,116,992",
                           "- 4,831,838,208  wpe.weight", "- 745,537,536", "874,944,921,600"}) {
    EXPECT_THAT(run.out, HasSubstr(text));
  }
}

TEST_F(GraphReport, NamesTheMissingInputGradientBesideTheTextbook) {
  const Outcome run = Run("two-layer:256,64 --batch=1024");
  EXPECT_THAT(
      run.out,
      AllOf(HasSubstr("167,772,160"), HasSubstr("335,544,320"), HasSubstr("201,326,592"),
            HasSubstr("first input gradient, w1"), HasSubstr("- 134,217,728")));
}

TEST_F(GraphReport, PrintsAtMost100Columns) {
  for (const char* model : {"gpt2-xl --batch=8", "mlp", "cruncher:64,9"}) {
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(Run(model).out, '\n'))) {
      // A command stays on one line.
      if (absl::StartsWith(line, "check the proof: ")) continue;
      EXPECT_LE(DisplayWidth(line), 100) << line;
    }
  }
}

TEST_F(GraphReport, SaysThatOnlyForwardRanWhereOnlyForwardRan) {
  const Json report = ReportOf("two-layer:256,64 --batch=1024 --phase=forward");
  EXPECT_EQ(Figure(report, "flops.model"), 167772160);
  EXPECT_EQ(report.Find("run")->Find("phase")->string(), "forward");
  EXPECT_TRUE(report.Find("run")->Find("optimizer")->is(Json::Kind::kNull));
}

TEST_F(GraphReport, WritesAProofThatTheIndependentCheckerAccepts) {
  for (const char* model : {"gpt2:layers=2,width=64,heads=2,vocab=100,context=32 --accumulate=2",
                            "mlp --freeze=layers.0", "cruncher", "two-layer --phase=forward"}) {
    ASSERT_EQ(Run(absl::StrCat(model, " --quiet --out=r")).code, 0) << model;
    const Outcome check =
        Shell("python3 '" TALLY_SOURCE_DIR "/tools/verify_proof.py' r/graph.json r/proof.json");
    EXPECT_EQ(check.code, 0) << model << check.out << check.err;
  }
}

TEST_F(GraphReport, WritesTheSameBytesTwice) {
  const Outcome one = Run("gpt2:layers=3 --seq=64 --out=r");
  fs::rename(Path("r"), Path("one"));
  const Outcome two = Run("gpt2:layers=3 --seq=64 --out=r");
  EXPECT_EQ(one.out, two.out);
  for (const auto& entry : fs::directory_iterator(Path("one"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(Bytes(entry.path()), Bytes(Path("r") / name)) << name;
  }
}

TEST_F(GraphReport, WritesIntoAFolderOfTheModelsName) {
  EXPECT_EQ(Run("mlp:784,512,10 --quiet").code, 0);
  for (const char* name : {"graph.dot", "plan-none.dot", "plan-sqrt.dot", "plan-sqrt.txt",
                           "plan-sqrt.json", "report.json", "proof.json", "graph.json"}) {
    EXPECT_TRUE(fs::exists(Path("mlp-784-512-10.report") / name)) << name;
  }
}

TEST_F(GraphReport, WritesOnlyWhatIsNamed) {
  EXPECT_EQ(Run("mlp --json=x.json --csv=x.csv --graph=x.graph").code, 0);
  EXPECT_FALSE(fs::exists(Path("mlp.report")));
  EXPECT_TRUE(fs::exists(Path("x.json")) && fs::exists(Path("x.csv")));
  EXPECT_TRUE(ParseGraphJson(Bytes(Path("x.graph"))).ok());
}

TEST_F(GraphReport, DrawsBesideTheDotFile) {
  if (Shell("dot -V").code != 0) {
    // Without Graphviz the DOT file is still there, and the exit says so.
    EXPECT_EQ(Run("two-layer --svg --dot=x.dot").code, 6);
    EXPECT_TRUE(fs::exists(Path("x.dot")));
    return;
  }
  EXPECT_EQ(Run("two-layer --svg --png --dot=x.dot").code, 0);
  EXPECT_THAT(Bytes(Path("x.svg")), HasSubstr("<svg"));
  EXPECT_THAT(Bytes(Path("x.png")), StartsWith("\x89PNG"));
  EXPECT_EQ(Run("two-layer --svg").code, 0);
  EXPECT_TRUE(fs::exists(Path("two-layer.report/graph.svg")));
  EXPECT_TRUE(fs::exists(Path("two-layer.report/plan-none.svg")));
}

TEST_F(GraphReport, KeepsTheDotFileWhenDrawingFails) {
  const Outcome run =
      Shell("PATH=/nowhere " TALLY_BINARY_DIR "/bin/graph-report two-layer --svg --quiet --out=r");
  EXPECT_EQ(run.code, 6);
  EXPECT_THAT(run.err, HasSubstr("r/graph.dot"));
  EXPECT_THAT(Bytes(Path("r/graph.dot")), HasSubstr("digraph"));
}

TEST_F(GraphReport, ShowsPartsOfThePictureAsAsked) {
  const std::string whole = Run("gpt2:layers=2 --seq=8 --dot=-").out;
  EXPECT_THAT(whole, HasSubstr("digraph"));
  for (const char* flag :
       {"--fold=none", "--fold=depth:1", "--focus=attn", "--detail=matmul", "--labels=symbolic"}) {
    const Outcome run = Run(absl::StrCat("gpt2:layers=2 --seq=8 --dot=- ", flag));
    EXPECT_EQ(run.code, 0) << flag << run.err;
    EXPECT_NE(run.out, whole) << flag;
  }
}

TEST_F(GraphReport, PutsNothingElseOnStdout) {
  const Outcome csv = Run("mlp --csv=-");
  EXPECT_THAT(csv.out, StartsWith("node,op,phase,"));
  EXPECT_THAT(csv.out, Not(HasSubstr("Reconciliation")));
  EXPECT_TRUE(ParseGraphJson(Run("mlp --graph=-").out).ok());
  EXPECT_EQ(Run("mlp --quiet --out=r").out, "");
}

TEST_F(GraphReport, ReportsAFileAsRecordedUnlessARunFlagIsGiven) {
  SaveSmall("model.bin", SmallConfig());
  EXPECT_THAT(Run("model.bin").out, HasSubstr("as recorded in the file"));
  EXPECT_TRUE(fs::exists(Path("model.report/report.json")));
  const Outcome again = Run("model.bin --batch=16 --json=again.json");
  EXPECT_THAT(again.out, HasSubstr("traced again on meta for --batch"));
  // 2·batch·(16·64 + 64·16) FLOPs.
  EXPECT_EQ(Figure(*ParseJson(Bytes(Path("again.json"))), "flops.forward.matmul"),
            2 * 16 * (16 * 64 + 64 * 16));
}

TEST_F(GraphReport, TracesAgainWithWhatTheFileSaysOfItsRun) {
  SaveSmall("model.bin", SmallConfig());
  const Json report = ReportOf("model.bin --phase=backward");
  EXPECT_EQ(Figure(report, "run.batch"), 8);
}

TEST_F(GraphReport, ReportsTheSameForATraceAndItsFile) {
  SaveSmall("model.bin", SmallConfig());
  const Outcome run = Run("model.bin --diff=mlp:16,64,16");
  EXPECT_EQ(run.code, 0);
  // The built-in model is traced at the default batch of 1.
  EXPECT_THAT(run.out, HasSubstr("run.batch"));
  EXPECT_EQ(Figure(ReportOf("model.bin"), "memory.peak"),
            Figure(ReportOf("mlp:16,64,16 --batch=8"), "memory.peak"));
}

TEST_F(GraphReport, RefusesRunFlagsForAGraphWithoutAFamily) {
  Write(Path("graph.json"), GraphJsonText(SmallTrace().graph));
  EXPECT_EQ(Run("graph.json").code, 0);
  const Outcome run = Run("graph.json --batch=2");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--batch"), HasSubstr("no family to trace again")));
}

}  // namespace
}  // namespace tally
