// graph-report on the families of transformers, and the flags about them.
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tally/tests/tools/graph_report_run.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using GraphReportModels = GraphReport;

Count Matmul(const Json& report, const char* phase) {
  Count value = -1;
  report.Find("flops")->Find(phase)->Find("matmul")->ToCount(&value);
  return value;
}

bool Holds(const Json& report) { return report.Find("proof")->Find("holds")->boolean(); }

TEST_F(GraphReportModels, CountsABlockOfLlama) {
  const Json report = ReportOf("llama-3-8b:layers=1 --seq=512");
  EXPECT_TRUE(Holds(report));
  // Queries and output 4096², keys and values 4096·1024, three matrices 4096·14336, the head
  // 4096·128256; scores and their product with the values over the full square of 512.
  const int64_t d = 4096, weights = 2 * d * d + 2 * d * 1024 + 3 * d * 14336 + d * 128256;
  EXPECT_EQ(Matmul(report, "forward"), 2 * 512 * weights + 4 * 512 * 512 * d);
  EXPECT_EQ(Matmul(report, "backward"), 2 * (2 * 512 * weights + 4 * 512 * 512 * d));
}

TEST_F(GraphReportModels, CountsAttentionAlikeFusedAndComposed) {
  const Json fused = ReportOf("llama-3-8b:layers=1 --seq=256 --attention=fused"),
             composed = ReportOf("llama-3-8b:layers=1 --seq=256 --attention=composed");
  for (const char* phase : {"forward", "backward"}) {
    EXPECT_EQ(Matmul(fused, phase), Matmul(composed, phase)) << phase;
  }
}

TEST_F(GraphReportModels, CountsPackedDocumentsByTheirPairs) {
  const std::string model = "llama-3-8b:layers=1,heads=4,kv_heads=4,width=64,inner=64,vocab=64 ";
  const Count whole = Matmul(ReportOf(model + "--seq=64"), "forward"),
              packed = Matmul(ReportOf(model + "--documents=40,24"), "forward");
  // 4·T·T·d for T = 64 against 40 and 24.
  EXPECT_EQ(whole - packed, 4 * 64 * (64 * 64 - 40 * 40 - 24 * 24));
}

TEST_F(GraphReportModels, TrainsAdaptersAlone) {
  const Json report = ReportOf("gpt2:layers=1 --seq=8 --lora=2 --lora-targets=c_attn");
  EXPECT_TRUE(Holds(report));
  const Json plain = ReportOf("gpt2:layers=1 --seq=8");
  // Two products more forward, 2·N·r·(in + out).
  EXPECT_EQ(Matmul(report, "forward") - Matmul(plain, "forward"), 2 * 8 * 2 * (768 + 3 * 768));
  // AdamW's two moments are those of A [2,768] and B [2304,2] alone.
  const Outcome run = Run("gpt2:layers=1 --seq=8 --lora=2 --lora-targets=c_attn --quiet");
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST_F(GraphReportModels, RunsEveryMicroBatchInEveryPhase) {
  const std::string model = "gpt2:layers=1,width=8,heads=1,vocab=16 --seq=4 ";
  for (const char* phase : {"forward", "backward", "train"}) {
    const std::string flags = absl::StrCat(model, "--phase=", phase);
    EXPECT_EQ(Matmul(ReportOf(flags + " --accumulate=3"), "forward"),
              3 * Matmul(ReportOf(flags), "forward"))
        << phase;
  }
}

TEST_F(GraphReportModels, SaysWhatElseWasTraced) {
  const Outcome run = Run(
      "gpt2:layers=1 --lora=2 --lora-alpha=8 --lora-targets=attn --accumulate=2 --freeze=c_proj "
      "--documents=5,3");
  EXPECT_EQ(run.code, 0) << run.err;
  std::string flat;  // the summary breaks lines
  for (absl::string_view word : absl::StrSplit(run.out, absl::ByAnyChar(" \n"), absl::SkipEmpty()))
    absl::StrAppend(&flat, word, " ");
  for (const char* part : {"composed attention", "2 micro-batches", "frozen: ", "5 + 3",
                           "adapters of rank 2 with alpha 8 on layers that match"}) {
    EXPECT_THAT(flat, HasSubstr(part));
  }
}

// What is made again is counted apart. Full checkpoints run the products of each block again, but
// for the last: nobody in the block reads what it makes.
TEST_F(GraphReportModels, CountsWhatCheckpointedBlocksMakeAgain) {
  const Json plain = ReportOf("gpt2:layers=2 --seq=64"),
             full = ReportOf("gpt2:layers=2 --seq=64 --checkpoint=full"),
             core = ReportOf("gpt2:layers=2 --seq=64 --checkpoint=attention");
  for (const Json* report : {&full, &core}) {
    EXPECT_TRUE(Holds(*report));
    for (const char* phase : {"forward", "backward"}) {
      EXPECT_EQ(Matmul(*report, phase), Matmul(plain, phase)) << phase;
    }
    const auto saved = [](const Json& r) { return r.Find("memory")->Find("saved")->integer(); };
    EXPECT_LT(saved(*report), saved(plain));
  }
  // Of a block with 64 rows: the projections 3d², d² and 4d²; the scores, and their product with
  // the values, which the projection behind it reads. Of the core alone the scores.
  const int64_t d = 768, scores = 2 * 64 * 64 * d;
  EXPECT_EQ(Matmul(plain, "recompute"), 0);
  EXPECT_EQ(Matmul(full, "recompute"), 2 * (2 * 64 * 8 * d * d + 2 * scores));
  EXPECT_EQ(Matmul(core, "recompute"), 2 * scores);
}

class RetracedFile : public GraphReport {
 protected:
  // Parameters of `held` beside the config of two documents and three micro-batches of `said`.
  void Save(const TransformerConfig& held, const TransformerConfig& said) const {
    Parameters parameters;
    const std::unique_ptr<Model> model = MakeModel(parameters, held);
    const std::string config = ModelConfigJson({.family = said,
                                                .batch = 1,
                                                .sequence = 8,
                                                .optimizer = "sgd",
                                                .accumulate = 3,
                                                .documents = {5, 3}});
    ASSERT_TRUE(SaveModel(Path("model.bin").string(),
                          {.tensors = parameters.named(), .config_json = config})
                    .ok());
  }
  const TransformerConfig small_{.vocab = 16, .context = 16, .width = 8, .layers = 2, .heads = 2};
};

TEST_F(RetracedFile, KeepsItsMicroBatchesAndItsDocuments) {
  Save(small_, small_);
  const Count one = Matmul(ReportOf("model.bin --accumulate=1"), "forward");
  EXPECT_EQ(Matmul(ReportOf("model.bin --batch=1"), "forward"), 3 * one);
  const Outcome run = Run("model.bin --seq=4");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("say with --documents=LEN,LEN..."));
  EXPECT_EQ(Run("model.bin --seq=4 --documents=4").code, 0);
  EXPECT_EQ(Run("model.bin --seq=8").code, 0);
}

TEST_F(RetracedFile, IsRefusedWhereItsTensorsAreOfAnotherModel) {
  TransformerConfig wide = small_, shallow = small_;
  wide.inner = 48;
  shallow.layers = 1;
  const struct {
    TransformerConfig said;
    const char* message;
  } cases[] = {{wide, "is [32] in the file, [48] by the config"},
               {shallow, "is a tensor, and no parameter"}};
  for (const auto& c : cases) {
    Save(small_, c.said);
    const Outcome run = Run("model.bin --batch=2");
    EXPECT_EQ(run.code, 3);
    EXPECT_THAT(run.err, HasSubstr(c.message));
  }
  Save(shallow, small_);
  EXPECT_THAT(Run("model.bin").err, HasSubstr("is a parameter, and no tensor"));
}

TEST_F(GraphReportModels, RunsEveryFamily) {
  for (const char* model :
       {"pythia-14m:layers=2", "mistral-7b-v0.1:layers=2", "mixtral-8x7b:layers=1",
        "qwen2-0.5b:layers=2", "qwen3-0.6b:layers=2", "qwen3-30b-a3b:layers=1", "gemma-2b:layers=1",
        "gemma-2-2b:layers=2", "phi-2:layers=1", "phi-3-mini:layers=2", "bert-base:layers=2",
        "opt-350m:layers=2", "vit-b-16:layers=2", "cs336-gpt2-xl:layers=1"}) {
    const std::string size = absl::StartsWith(model, "vit") ? " --batch=2" : " --batch=2 --seq=32";
    EXPECT_TRUE(Holds(ReportOf(model + size))) << model;
  }
}

TEST_F(GraphReportModels, RefusesFlagsThatDoNotFit) {
  for (const char* arguments : {"gpt2 --lora-alpha=2",
                                "gpt2 --lora-targets=mlp",
                                "gpt2 --lora=-1",
                                "gpt2 --lora=2 "
                                "--lora-targets='('",
                                "gpt2 --lora=2 --lora-targets=nothing",
                                "gpt2 --documents=3,x",
                                "gpt2 --documents=3,0",
                                "gpt2 --documents=3,4 --seq=8",
                                "gpt2 --documents=1000,1000",
                                "mlp --documents=2",
                                "vit-b-16 --documents=2",
                                "vit-b-16 --seq=8",
                                "gpt2 --attention=quick",
                                "mlp --attention=fused",
                                "gpt2 --checkpoint=ful",
                                "gpt2 --checkpoint=full:0",
                                "mlp --checkpoint=attention",
                                "gpt2 --checkpoint=attention:2",
                                "gpt2:dropout=0.1 --attention=fused",
                                "llama-3-8b:experts=2,experts_per_token=1",
                                "llama-3-8b:layers=1000000"}) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.code, 2) << arguments << run.out << run.err;
    EXPECT_THAT(run.err, StartsWith("graph-report: ")) << arguments;
  }
}

TEST_F(GraphReportModels, ListsParametersAndThoseThatATokenUses) {
  const Outcome run = Run("--list-models");
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, AllOf(HasSubstr("46,702,792,704"), HasSubstr("12,879,925,248"),
                             HasSubstr("405,853,388,800"), HasSubstr("8 of 128 experts")));
}

}  // namespace
}  // namespace tally
