// tally-train as a user runs it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tally/analysis/verify.h"
#include "tally/io/model_config.h"
#include "tally/io/model_file.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code = -1;
  std::string out;  // stdout and stderr
};

Outcome Train(const std::string& arguments) {
  const std::string command =
      std::string(TALLY_BINARY_DIR) + "/bin/tally-train " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Outcome run;
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) run.out.append(buffer, n);
  run.code = WEXITSTATUS(pclose(pipe));
  return run;
}

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string Temp(const std::string& name) {
  return testing::TempDir() + "/tally_train_" + std::to_string(getpid()) + "_" + name;
}

constexpr char kSmall[] =
    "--steps=3 --every=1 --width=16 --layers=2 --heads=2 --context=16 --batch=2 ";

TEST(TallyTrain, MeasuresThePeakItPredicted) {
  for (const char* extra :
       {"", "--dropout=0.1", "--accumulate=3", "--optimizer=sgd --clip=0",
        "--optimizer=sgd-momentum", "--optimizer=adagrad --dtype=mixed-f32grad --accumulate=2",
        "--batch=3 --context=7", "--lora=2", "--attention=fused", "--documents=9,7",
        "--family=llama", "--family=mixtral --dropout=0.1", "--family=gemma2",
        "--family=gpt_neox --lora=2", "--checkpoint=full --dropout=0.1",
        "--checkpoint=matmul:2 --family=mixtral", "--checkpoint=attention --accumulate=2"}) {
    const Outcome run =
        Train(absl::StrCat("--steps=3 --width=16 --layers=2 --heads=2 ",
                           absl::string_view(extra).find("--context") == absl::string_view::npos
                               ? "--context=16 --batch=2 "
                               : "",
                           extra, " --out=", Temp("peak.bin")));
    EXPECT_EQ(run.code, 0) << run.out;
    EXPECT_THAT(run.out, HasSubstr("(equal)")) << extra;
  }
}

// FLOPs of the predicted step, against a peak that is named; without one nothing is told.
// The lines that tell losses, and the bytes of every parameter in the file that was written.
std::string TrainedAs(const std::string& arguments, const std::string& path) {
  const Outcome run = Train(absl::StrCat(arguments, " --out=", path));
  EXPECT_EQ(run.code, 0) << run.out;
  std::string text;
  for (absl::string_view line : absl::StrSplit(run.out, '\n')) {
    const size_t loss = line.find("loss ");  // what follows it is a speed
    if (absl::StartsWith(line, "step ") || absl::StartsWith(line, "final loss"))
      absl::StrAppend(&text, line.substr(0, line.find("  ", loss)), "\n");
  }
  EXPECT_NE(text, "");
  const ModelFile file = ValueOrThrow(ReadModel(path));
  for (const SafetensorsEntry& entry : file.tensors->tensors()) {
    const Tensor tensor = ValueOrThrow(file.Load(entry.name));
    absl::StrAppend(&text, entry.name, " ",
                    absl::string_view(static_cast<const char*>(tensor.storage().data()),
                                      static_cast<size_t>(tensor.spec().bytes())),
                    "\n");
  }
  return text;
}

TEST(TallyTrain, GivesTheSameBitsUnderAPlanInThePeakOfThePlan) {
  const std::string plain = Temp("plain.bin"), planned = Temp("planned.bin");
  const std::string model =
      "--steps=3 --every=1 --width=16 --layers=4 --heads=2 --context=16 --batch=2 --threads=1 ";
  for (const char* extra : {"", "--dropout=0.2 --accumulate=2", "--family=llama --dtype=mixed",
                            "--family=mixtral --optimizer=sgd-momentum", "--lora=2 --clip=0"}) {
    const std::string arguments = absl::StrCat(model, extra);
    const std::string once = TrainedAs(arguments, plain);
    for (const char* plan : {"sqrt", "uniform:1"}) {
      EXPECT_EQ(TrainedAs(absl::StrCat(arguments, " --plan=", plan), planned), once)
          << extra << " under " << plan;
    }
    const Outcome run = Train(absl::StrCat(arguments, " --plan=uniform:1 --out=", planned));
    EXPECT_THAT(run.out, HasSubstr("plan uniform:1: peak "));
    EXPECT_THAT(run.out, HasSubstr(" bytes (equal)")) << extra;
  }
  std::remove(plain.c_str());
  std::remove(planned.c_str());
}

// The record in a model's file is that of the steps: a plan made of it is a plan of them.
TEST(TallyTrain, RunsByAPlanThatAReportWrote) {
  const std::string model = Temp("reported.bin"), planned = Temp("replanned.bin");
  const std::string small = absl::StrCat(kSmall, "--threads=1 ");
  const std::string once = TrainedAs(small, model);
  const std::string folder = Temp("report");
  ASSERT_EQ(std::system(absl::StrCat(TALLY_BINARY_DIR, "/bin/graph-report ", model,
                                     " --plan=uniform:1 --quiet --out=", folder)
                            .c_str()),
            0);
  const std::string plan = absl::StrCat(small, "--plan=@", folder, "/plan-uniform-1.txt ");
  EXPECT_EQ(TrainedAs(plan, planned), once);
  EXPECT_THAT(Train(absl::StrCat(plan, "--out=", planned)).out, HasSubstr(" bytes (equal)"));
  const Outcome other = Train(absl::StrCat(plan, "--accumulate=2 --out=", planned));
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.out,
              HasSubstr("/plan-uniform-1.txt: plan text: line 2: the plan is of a graph"));
  std::filesystem::remove_all(folder);
  std::remove(model.c_str());
  std::remove(planned.c_str());
}

TEST(TallyTrain, RefusesPlansThatThereAreNot) {
  // As graph-report: what is proven or not found is 1, what is no plan's name 2.
  const Outcome small = Train(absl::StrCat(kSmall, "--plan=optimal:1KB --out=", Temp("none.bin")));
  EXPECT_EQ(small.code, 1) << small.out;
  EXPECT_THAT(small.out, AllOf(HasSubstr("--plan=optimal:1kB: no plan within 1,000 B; "
                                         "proven: no plan has a peak below "),
                               HasSubstr(", what node ")));
  for (const char* plan : {"sqr", "uniform:0", "fit", ""}) {
    const Outcome run = Train(absl::StrCat(kSmall, "--plan=", plan, " --out=", Temp("none.bin")));
    EXPECT_EQ(run.code, 2) << plan << run.out;
    EXPECT_THAT(run.out, HasSubstr("--plan")) << plan;
  }
}

TEST(TallyTrain, TellsUtilizationAgainstANamedPeakOnly) {
  const std::string out = absl::StrCat("--out=", Temp("mfu.bin"));
  const Outcome named = Train(absl::StrCat(kSmall, "--hardware=a100 ", out));
  EXPECT_THAT(named.out, HasSubstr("MFU and HFU are parts of 19.50 TFLOP/s: NVIDIA A100 SXM 80 GB, "
                                   "f32, dense"));
  const Outcome given = Train(absl::StrCat(kSmall, "--peak=1G ", out));
  EXPECT_THAT(given.out, HasSubstr("parts of 1.000 GFLOP/s: as --peak says"));
  EXPECT_THAT(given.out, testing::ContainsRegex("tokens/s  MFU [0-9.]+ %  HFU [0-9.]+ %"));
  EXPECT_THAT(Train(kSmall + out).out, Not(HasSubstr("MFU")));
}

TEST(TallyTrain, RefusesAnOutputThatCannotBeWrittenBeforeItTrains) {
  for (const std::string& out : {std::string("-"), std::string(), testing::TempDir(),
                                 Temp("no_such_folder") + "/model.bin"}) {
    const Outcome run = Train(absl::StrCat(kSmall, "--out='", out, "'"));
    EXPECT_EQ(run.code, 2) << out << ": " << run.out;
    EXPECT_THAT(run.out, Not(HasSubstr("loss"))) << out;
  }
}

TEST(TallyTrain, StopsWhenTheLossIsNoNumber) {
  const std::string path = Temp("diverged.bin");
  const Outcome run =
      Train(absl::StrCat("--steps=50 --width=16 --layers=1 --heads=2 --context=16 --batch=2 "
                         "--lr=1e6 --clip=0 --out=",
                         path));
  EXPECT_EQ(run.code, 1) << run.out;
  EXPECT_THAT(run.out, HasSubstr("the loss is no finite number any more"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TallyTrain, WritesAModelWhoseGraphVerifies) {
  const std::string path = Temp("model.bin");
  ASSERT_EQ(Train(kSmall + ("--out=" + path)).code, 0);
  const absl::StatusOr<ModelFile> file = ReadModel(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->graph.has_value());
  EXPECT_TRUE(Verify(*file->graph).ok());
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(file->config_json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(std::get<TransformerConfig>(config->family).width, 16);
  EXPECT_EQ(*config->batch, 2);
  EXPECT_TRUE(file->Load("h.1.mlp.c_fc.weight").ok());
}

// 60 blocks, 100 times: the graph's JSON passes the 100 MB that a header may have.
TEST(TallyTrain, KeepsWhatItTrainedWhenTheGraphIsTooLargeForTheFile) {
  const std::string path = Temp("large.bin");
  const Outcome run = Train(
      "--accumulate=100 --layers=60 --width=8 --heads=1 --context=4 --batch=1 --steps=1 --out=" +
      path);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("saved without the graph of the last step"));
  const absl::StatusOr<ModelFile> file = ReadModel(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->graph.has_value());
  EXPECT_TRUE(file->Load("h.59.mlp.c_fc.weight").ok());
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(file->config_json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->accumulate, 100);
  EXPECT_EQ(config->clip, 1);
}

TEST(TallyTrain, TrainsAdaptersAloneAndSaysSoInTheFile) {
  const std::string path = Temp("lora.bin"), untrained = Temp("untrained.bin");
  const std::string flags = std::string(kSmall) + "--lora=2 --lora-alpha=8 --lora-targets=attn ";
  ASSERT_EQ(Train(flags + "--out=" + path).code, 0);
  ASSERT_EQ(Train(flags + "--lr=0 --out=" + untrained).code, 0);
  const absl::StatusOr<ModelFile> file = ReadModel(path), base = ReadModel(untrained);
  ASSERT_TRUE(file.ok() && base.ok()) << file.status() << base.status();
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(file->config_json);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->lora.rank, 2);
  EXPECT_EQ(config->lora.alpha, 8);
  EXPECT_THAT(config->lora.layers, ElementsAre("h.0.attn.c_attn", "h.0.attn.c_proj",
                                               "h.1.attn.c_attn", "h.1.attn.c_proj"));
  const auto same = [&](const char* name) {
    const absl::StatusOr<Tensor> a = file->Load(name), b = base->Load(name);
    EXPECT_TRUE(a.ok() && b.ok()) << name;
    return a.ok() && b.ok() && BitEqual(*a, *b);
  };
  EXPECT_TRUE(same("wte.weight"));
  EXPECT_TRUE(same("h.1.attn.c_attn.weight"));
  EXPECT_FALSE(same("h.1.attn.c_attn.lora_B.weight"));
  EXPECT_FALSE(file->Load("h.1.mlp.c_fc.lora_B.weight").ok());
}

TEST(TallyTrain, RefusesModelsThatDoNotFit) {
  for (const char* extra : {"--documents=9,9", "--lora=2 --lora-targets=nothing", "--lora-alpha=3",
                            "--attention=fused --dropout=0.1"}) {
    const Outcome run = Train(absl::StrCat(kSmall, extra, " --out=", Temp("refused.bin")));
    EXPECT_EQ(run.code, 2) << extra << ": " << run.out;
  }
}

TEST(TallyTrain, GivesTheSameFileForTheSameSeeds) {
  const std::string a = Temp("a.bin"), b = Temp("b.bin"), c = Temp("c.bin");
  const std::string flags = std::string(kSmall) + "--threads=1 --dropout=0.2 ";
  Train(flags + "--out=" + a);
  Train(flags + "--out=" + b);
  EXPECT_EQ(Bytes(a), Bytes(b));
  for (const char* seed : {"--seed-init=9", "--seed-dropout=9", "--seed-data=9"}) {
    Train(flags + seed + " --out=" + c);
    EXPECT_NE(Bytes(a), Bytes(c)) << seed;
  }
}

// Losses as printed, of the same seeds with and without checkpoints.
TEST(TallyTrain, TrainsTheSameWithCheckpoints) {
  const auto losses = [](const std::string& flags) {
    const Outcome run = Train(absl::StrCat(kSmall, "--threads=1 --dropout=0.2 ", flags,
                                           " --out=", Temp("checkpointed.bin")));
    std::vector<std::string> lines;
    for (absl::string_view line : absl::StrSplit(run.out, '\n')) {
      const size_t at = line.find("loss");
      if (at != absl::string_view::npos) lines.emplace_back(line.substr(at, 12));
    }
    return lines;
  };
  const std::vector<std::string> plain = losses("");
  EXPECT_GE(plain.size(), 3u);
  for (const char* how : {"full", "cheap", "attention"}) {
    EXPECT_EQ(losses(absl::StrCat("--checkpoint=", how)), plain) << how;
  }
}

TEST(TallyTrain, LearnsARepeatingText) {
  const std::string text = Temp("text.txt");
  std::ofstream(text) << [] {
    std::string s;
    for (int i = 0; i < 200; ++i) s += "abcdefgh";
    return s;
  }();
  const Outcome run = Train(
      text +
      " --threads=1 --steps=150 --width=32 --layers=1 --heads=2 --context=16 --batch=8 --lr=1e-2 "
      "--quiet --out=" +
      Temp("learn.bin"));
  ASSERT_EQ(run.code, 0) << run.out;
  const size_t at = run.out.find("final loss ");
  ASSERT_NE(at, std::string::npos) << run.out;
  EXPECT_LT(std::atof(run.out.c_str() + at + 11), 0.2);
}

// The file names the policy; the last step's record in it is of that policy.
TEST(TallyTrain, WritesWhatItKeptInWhichDType) {
  const std::string out = Temp("mixed.bin");
  const Outcome run = Train(absl::StrCat(kSmall, "--dtype=mixed --optimizer=rmsprop --out=", out));
  ASSERT_EQ(run.code, 0) << run.out;
  const ModelFile file = ValueOrThrow(ReadModel(out));
  EXPECT_STREQ(ValueOrThrow(ParseModelConfig(file.config_json)).policy->name, "mixed");
  int masters = 0, parameters = 0;
  for (const Node& node : file.graph->nodes) {
    masters += node.op->name == absl::string_view("rmsprop_master_");
  }
  for (const SafetensorsEntry& entry : file.tensors->tensors()) {
    ++parameters;
    EXPECT_EQ(entry.type, "BF16");
  }
  EXPECT_EQ(masters, parameters);
}

TEST(TallyTrain, SaysWhatIsWrongWithItsInput) {
  const std::string empty = Temp("empty.txt");
  std::ofstream(empty).close();
  const struct {
    std::string arguments;
    int code;
    const char* message;
  } cases[] = {
      {"--stps=3", 2, "did you mean --steps?"},
      {"--steps=many", 2, "--steps=many: wanted a whole number"},
      {"--steps", 2, "--steps wants a value"},
      {"--steps=1.5", 2, "--steps=1.5: wanted a whole number"},
      {"--optimizer=adagard", 2, "did you mean adagrad?"},
      {"--dtype=mixd", 2, "did you mean mixed?"},
      {"--family=vit", 2, "--family=vit: is no language model"},
      {"--family=lama", 2, "did you mean llama?"},
      {"--documents=", 2, "--documents wants a value"},
      {"--hardware=h10", 2, "did you mean h100-sxm"},
      {"--peak=0", 2, "--peak=0: wanted FLOP/s"},
      {"--peak=1T --hardware=h100", 2, "two peaks"},
      {"--out=/dev/null", 2, "--out: /dev/null: is not a regular file"},
      {"--width=10 --heads=3", 2, "not a multiple of heads"},
      {"/no/such/file", 3, "/no/such/file: No such file"},
      {"/", 3, "is not a regular file"},
      {empty, 3, "is empty"},
      {"a b", 2, "one TEXT is enough"},
      {std::string(kSmall) + "--out=/no/such/folder/model.bin", 2, "/no/such/folder"},
  };
  for (const auto& c : cases) {
    const Outcome run = Train(c.arguments);
    EXPECT_EQ(run.code, c.code) << c.arguments << "\n" << run.out;
    EXPECT_THAT(run.out, HasSubstr(c.message)) << c.arguments;
  }
}

TEST(TallyTrain, HelpGoesToStdoutAndSucceeds) {
  const Outcome run = Train("--help 2>/dev/null");
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, HasSubstr("--seed-dropout"));
}

}  // namespace
}  // namespace tally
