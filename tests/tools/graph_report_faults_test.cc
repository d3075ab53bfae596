// What graph-report says to bad flags and bad files, and how it exits.
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "tally/io/graph_json.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using GraphReportFaults = GraphReport;

TEST_F(GraphReportFaults, SaysWhatAnUnknownFlagOrValueProbablyMeant) {
  Outcome run = Run("gpt2 --batc=2");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--batch"));
  run = Run("gpt2 --plan=sqr");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("did you mean sqrt"));
}

TEST_F(GraphReportFaults, RefusesAbsurdFlags) {
  for (const char* arguments : {"",
                                "gpt2 mlp",
                                "gpt2 --batch=0",
                                "gpt2 --batch=1T --seq=1024",
                                "gpt2 --seq=2048",
                                "gpt2 --dtype=f31",
                                "gpt2:layers=1000000000",
                                "gpt2 --accumulate=65536",
                                "mlp:0,1",
                                "gpt2 --freeze='('",
                                "mlp --seq=5",
                                "gpt2 --freeze=nothing",
                                "gpt2 --focus='['",
                                "gpt2 --fold=depth:x",
                                "gpt2 --json=- --csv=-",
                                "mlp --focus=nothinglikethis",
                                "mlp --svg --json=x",
                                "mlp --svg --dot=-",
                                "gpt2 --explain=a --diff=b",
                                "gpt2 --hardware=h10",
                                "gpt2 --tf32",
                                "gpt2 --mfu=0.5",
                                "gpt2 --tokens=1 --mfu=1.01",
                                "gpt2 --tokens=1 --mfu=nan",
                                "gpt2 --tokens=10000P",
                                "gpt2 --gpus=0",
                                "mlp:9000000000000000000,9000000000000000000"}) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.code, 2) << arguments << run.out << run.err;
    EXPECT_THAT(run.err, StartsWith("graph-report: ")) << arguments;
  }
}

TEST_F(GraphReportFaults, TakesNoFlagForAValue) {
  const Outcome run = Run("mlp:4,3 --pareto-csv --out=c");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--pareto-csv wants a value: --pareto-csv=FILE; --out=c stands"));
  EXPECT_FALSE(fs::exists(Path("--out=c")));
  EXPECT_EQ(Run("mlp:4,3 --json - --batch 2").code, 0);
}

TEST_F(GraphReportFaults, RefusesTwoOutputsInOneFile) {
  const Outcome run = Run("mlp:4,3 --json=same.json --graph=./same.json");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--json and --graph name the same file"));
  EXPECT_FALSE(fs::exists(Path("same.json")));
}

TEST_F(GraphReportFaults, SaysWhichOfItsOwnFilesIsNoModel) {
  ASSERT_EQ(Run("mlp:4,3 --quiet --out=step").code, 0);
  const Outcome report = Run("step/report.json"), proof = Run("step/proof.json");
  EXPECT_EQ(report.code, 4);
  EXPECT_THAT(report.err, HasSubstr("is a report of tally, for --diff"));
  EXPECT_EQ(proof.code, 4);
  EXPECT_THAT(proof.err, HasSubstr("is the proof of a graph"));
}

TEST_F(GraphReportFaults, TakesMinusHForHelp) {
  const Outcome run = Run("-h");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, Run("--help").out);
}

TEST_F(GraphReportFaults, SuggestsABuiltInModelForAnUnknownName) {
  const struct {
    const char *model, *meant;
  } cases[] = {{"gtp2", "gpt2"},
               {"gpt-2", "gpt2"},
               {"llama3-8b", "llama-3-8b"},
               {"llama-3-8B", "llama-3-8b"},
               {"qwen2.5", "qwen2.5-1.5b, qwen2.5-32b"},
               {"gtp2:dropout=0.1", "gpt2"}};
  for (const auto& c : cases) {
    const Outcome run = Run(c.model);
    EXPECT_EQ(run.code, 2) << c.model;
    EXPECT_THAT(run.err, HasSubstr(absl::StrCat("did you mean ", c.meant)));
    EXPECT_THAT(run.err, HasSubstr("--list-models"));
  }
  for (const char* path : {"gpt2.bin", "./gpt2", "runs/gpt2", "llama-3.1-8b.safetensors"}) {
    const Outcome run = Run(path);
    EXPECT_EQ(run.code, 3) << path;
    EXPECT_THAT(run.err, HasSubstr("no such file"));
  }
}

TEST_F(GraphReportFaults, TakesOnlyWholeNumbersAsCounts) {
  for (const char* flag : {"--batch=1.5", "--batch=2.5e0", "--seq=7.9", "--lora=8.5",
                           "--batch=0.0015K", "--accumulate=1e-1"}) {
    const Outcome run = Run(absl::StrCat("gpt2 ", flag));
    EXPECT_EQ(run.code, 2) << flag;
    EXPECT_THAT(run.err, HasSubstr("wanted a whole number")) << flag;
  }
  const Json report = ReportOf("mlp:4,3 --batch=0.002K");
  EXPECT_EQ(report.Find("run")->Find("batch")->integer(), 2);
}

TEST_F(GraphReportFaults, NamesTheFlagThatDoesNotFit) {
  const struct {
    const char *arguments, *message;
  } cases[] = {
      {"tinyllama-1.1b --seq=4097", "tinyllama-1.1b: --seq=4097 is longer than the model's"},
      {"gpt2 --documents=1000,1000", "--documents=1000,1000: together longer"},
      {"gpt2 --documents=", "--documents wants a value"},
      {"gpt2 --freeze=", "--freeze wants a value"},
      {"gpt2 --lora=2 --lora-targets=", "--lora-targets wants a value"},
      {"mlp --seq=5", "an mlp takes rows"},
      {"mlp --json=no/such/file", "--json: no/such/file"},
  };
  for (const auto& c : cases) {
    const Outcome run = Run(c.arguments);
    EXPECT_EQ(run.code, 2) << c.arguments;
    EXPECT_THAT(run.err, HasSubstr(c.message)) << c.arguments;
  }
  EXPECT_THAT(Run("gpt2 --dtype=fp8").err, testing::Not(HasSubstr("did you mean")));
}

TEST_F(GraphReportFaults, WritesIntoDevices) {
  const Outcome run = Run("mlp:4,3 --json=/dev/null --csv=/dev/null");
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST_F(GraphReportFaults, RefusesATruncatedFileAtEveryTenth) {
  SaveSmall("whole.bin", SmallConfig());
  const std::string whole = Bytes(Path("whole.bin"));
  for (size_t tenth = 1; tenth < 10; ++tenth) {
    Write(Path("model.bin"), whole.substr(0, whole.size() * tenth / 10));
    const Outcome run = Run("model.bin");
    EXPECT_EQ(run.code, 3) << run.out;
    EXPECT_THAT(run.err, HasSubstr("model.bin"));
  }
}

TEST_F(GraphReportFaults, RefusesACorruptedFileOrReportsItWhole) {
  SaveSmall("whole.bin", SmallConfig());
  const std::string whole = Bytes(Path("whole.bin"));
  for (size_t i = 0; i < 40; ++i) {
    std::string bytes = whole;
    bytes[bytes.size() * i / 40] ^= 0x15;
    Write(Path("model.bin"), bytes);
    const int code = Run("model.bin --json=r.json").code;
    EXPECT_TRUE(code == 0 || code == 1 || code == 3 || code == 4) << "byte " << i << ": " << code;
  }
}

TEST_F(GraphReportFaults, RefusesWhatIsNoModel) {
  Write(Path("empty.bin"), "");
  EXPECT_EQ(Run("empty.bin").code, 3);
  fs::create_directory(Path("folder"));
  EXPECT_EQ(Run("folder").code, 3);
  Write(Path("folder/config.json"), "{}");
  const Outcome foreign = Run("folder");
  EXPECT_EQ(foreign.code, 4);
  EXPECT_THAT(foreign.err, HasSubstr("config.json"));
  Write(Path("model.gguf"), "GGUF\3\0\0\0........");
  EXPECT_EQ(Run("model.gguf").code, 4);
}

TEST_F(GraphReportFaults, RefusesJsonThatLiesAboutShapes) {
  std::string text = GraphJsonText(SmallTrace().graph);
  ASSERT_TRUE(absl::StrContains(text, "[8, 64]"));
  Write(Path("graph.json"), absl::StrReplaceAll(text, {{"[8, 64]", "[8, 65]"}}));
  const Outcome run = Run("graph.json");
  EXPECT_EQ(run.code, 3) << run.out;
  EXPECT_THAT(run.err, HasSubstr("graph.json"));
}

TEST_F(GraphReportFaults, FindsTheModelInAFolder) {
  fs::create_directory(Path("folder"));
  SaveSmall("folder/model.bin", SmallConfig());
  EXPECT_EQ(Run("folder").code, 0);
}

TEST_F(GraphReportFaults, SaysWhereItCannotWrite) {
  Write(Path("file"), "x");
  const Outcome run = Run("mlp --out=file/r");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("file/r"));
}

}  // namespace
}  // namespace tally
