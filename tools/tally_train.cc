// tally-train: trains a small transformer byte by byte on a text file and writes model.bin with its
// graph.
#include <omp.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/roofline.h"
#include "tally/analysis/utilization.h"
#include "tally/io/atomic_file.h"
#include "tally/io/model_config.h"
#include "tally/io/model_file.h"
#include "tally/io/table.h"
#include "tally/io/text.h"
#include "tally/optim/schedule.h"
#include "tally/tools/common/flags.h"
#include "tally/tools/common/hardware_flag.h"
#include "tally/tools/common/model_flags.h"
#include "tally/tools/common/trace.h"
#include "tally/tools/tally_train/corpus.h"

namespace tally {
namespace {

struct Options {
  TransformerConfig model{.vocab = 256, .context = 128, .width = 128, .layers = 4, .heads = 4};
  std::string family = "gpt2", attention, checkpoint, documents_text;
  std::vector<int64_t> documents;
  LoraOptions lora;
  int64_t steps = 200, batch = 8, every = 20, threads = 0, sample = 0, accumulate = 1;
  int64_t seed_init = 1, seed_dropout = 2, seed_data = 3;
  double lr = 1e-3, clip = 1.0, temperature = 0.8;
  DTypePolicy policy;
  std::string optimizer = "adamw", dtype = "f32", out = "model.bin";
  std::string hardware_name, peak_text;
  std::optional<Hardware> hardware;  // what utilization is measured against, or
  Peak peak;                         // this rate; neither: it is not told
  bool quiet = false, help = false, version = false;
};

std::vector<std::string> LanguageModelFamilies() {
  std::vector<std::string> names;
  for (int i = 0; kFamilyNames[i] != nullptr; ++i) {
    const Family family = static_cast<Family>(i);
    if (FamilyDefaults(family).head == Head::kLanguageModel) names.push_back(Name(family));
  }
  return names;
}

// The family's form in the sizes of the flags: every head has keys of its own, gated layers are
// 8/3 of the width (as many weights as plain ones of 4), experts four, of which two are chosen.
TransformerConfig InSmall(Family family, const TransformerConfig& sizes) {
  TransformerConfig c = FamilyDefaults(family);
  c.vocab = sizes.vocab;
  c.context = sizes.context;
  c.width = sizes.width;
  c.layers = sizes.layers;
  c.heads = sizes.heads;
  c.dropout = sizes.dropout;
  c.kv_heads = c.head_dim = c.expert_inner = 0;
  c.inner = c.gated ? (8 * c.width / 3 + 7) / 8 * 8 : 0;
  c.attention_scale = 0;
  if (c.experts > 0) {
    c.experts = 4;
    c.experts_per_token = 2;
  }
  if (c.dropout > 0) c.attention = AttentionKind::kComposed;
  return c;
}

Flags MakeFlags(Options& o) {
  Flags flags(
      "tally-train [TEXT] [flags]",
      "Trains a transformer byte by byte on TEXT (default: this project's own text) and writes\n"
      "it with the graph of its last step. Exit: 0 ok, 1 the loss is no finite number any more,\n"
      "2 usage, 3 unreadable input, 5 internal or out of memory.");
  flags.Group("Model");
  flags.Text("family", &o.family, absl::StrJoin(LanguageModelFamilies(), "|"),
             "whose form the model has");
  flags.Integer("width", &o.model.width, 1, 1 << 16, "model width d");
  flags.Integer("layers", &o.model.layers, 1, 1000, "blocks");
  flags.Integer("heads", &o.model.heads, 1, 1 << 12, "attention heads; must divide the width");
  flags.Integer("context", &o.model.context, 1, 1 << 16, "sequence length");
  flags.Real("dropout", &o.model.dropout, 0, 0.99, "dropout rate");
  AddModelFlags(flags, &o.attention, &o.checkpoint, &o.documents_text, &o.lora);
  flags.Group("Training");
  flags.Integer("steps", &o.steps, 1, 1000000000, "steps");
  flags.Integer("batch", &o.batch, 1, 1 << 20, "sequences a micro-batch");
  flags.Integer("accumulate", &o.accumulate, 1, 1 << 16, "micro-batches a step");
  flags.Choice("optimizer", &o.optimizer, OptimizerNames(), "optimizer");
  flags.Choice("dtype", &o.dtype, PolicyNames(),
               "what is kept in which dtype (graph-report --dtypes shows them)");
  flags.Real("lr", &o.lr, 0, 1e6, "peak learning rate; cosine down to a tenth after a short rise");
  flags.Real("clip", &o.clip, 0, 1e9, "global norm that gradients are clipped to; 0: never");
  flags.Integer("threads", &o.threads, 0, 1024, "threads; 0: all cores");
  flags.Group("Utilization (without either, none is told)");
  flags.Text("hardware", &o.hardware_name, "NAME",
             "MFU and HFU against its peak (graph-report --list-hardware)");
  flags.Text("peak", &o.peak_text, "RATE", "MFU and HFU against this: 312T FLOP/s");
  flags.Group("Randomness");
  flags.Integer("seed-init", &o.seed_init, 0, INT64_MAX, "seed of the initial weights");
  flags.Integer("seed-dropout", &o.seed_dropout, 0, INT64_MAX, "seed of dropout");
  flags.Integer("seed-data", &o.seed_data, 0, INT64_MAX, "seed of the data order");
  flags.Group("Output");
  flags.Text("out", &o.out, "FILE", "where the model goes");
  flags.Integer("every", &o.every, 1, 1000000000, "steps between two lines");
  flags.Integer("sample", &o.sample, 0, 100000, "bytes of text to generate at the end");
  flags.Real("temperature", &o.temperature, 0.01, 100, "of the sample");
  flags.Switch("quiet", &o.quiet, "only the last lines");
  flags.Switch("help", &o.help, "this text");
  flags.Switch("version", &o.version, "the version");
  return flags;
}

int Fail(int code, const absl::Status& status) {
  std::fprintf(stderr, "tally-train: %s\n", std::string(status.message()).c_str());
  return code;
}

// A family that this program can train.
absl::StatusOr<Family> TrainedFamily(const std::string& name) {
  const std::vector<std::string> known = LanguageModelFamilies();
  Family family = Family::kGpt2;
  const bool is_family = FamilyFromName(name, &family);
  if (absl::c_linear_search(known, name)) return family;
  const std::string near = is_family ? "" : Nearest(name, known);
  return absl::InvalidArgumentError(absl::StrCat(
      "--family=", name, ": ",
      is_family ? "is no language model, and this program trains no other; " : "", "wanted one of ",
      absl::StrJoin(known, ", "), near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

// The model's fields that are not flags of their own.
absl::Status SetModel(Options& o) {
  TALLY_ASSIGN_OR_RETURN(o.documents, ParseDocuments(o.documents_text));
  TALLY_ASSIGN_OR_RETURN(const Family kind, TrainedFamily(o.family));
  TALLY_ASSIGN_OR_RETURN(FamilyConfig family, WithAttention(InSmall(kind, o.model), o.attention));
  TALLY_ASSIGN_OR_RETURN(family, WithCheckpoints(std::move(family), o.checkpoint));
  o.model = std::get<TransformerConfig>(family);
  o.policy = *FindPolicy(o.dtype);
  o.lora.seed = static_cast<uint64_t>(o.seed_init);
  return absl::OkStatus();
}

absl::Status SetPeak(Options& o) {
  if (!o.hardware_name.empty() && !o.peak_text.empty()) {
    return absl::InvalidArgumentError(
        "--hardware and --peak are two peaks to measure against; give one");
  }
  if (!o.hardware_name.empty()) {
    TALLY_ASSIGN_OR_RETURN(o.hardware, ParseHardware(o.hardware_name));
  }
  if (!o.peak_text.empty()) {
    TALLY_ASSIGN_OR_RETURN(o.peak.flops, ParsePeak(o.peak_text));
    o.peak.name = "as --peak says";
  }
  return absl::OkStatus();
}

// Whether the model can be written, asked before hours of training and not after. An AtomicFile
// that is not committed leaves nothing behind.
absl::Status CheckOut(const std::string& out) {
  if (out == "-") {
    return absl::InvalidArgumentError("--out wants a file; a model is not printed to stdout");
  }
  const absl::Status status = AtomicFile::Create(out).status();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--out: ", status.message()));
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Parameters MakeParameters(const Options& o) {
  Parameters parameters(Random(o.seed_init, RandomStream::kInit), o.policy.parameters);
  if (o.lora.rank > 0) parameters.Adapt(o.lora);
  return parameters;
}

std::vector<Tensor> Trained(const Parameters& parameters) {
  std::vector<Tensor> trained;
  for (const NamedTensor& p : parameters.trained()) trained.push_back(p.tensor);
  if (trained.empty()) ThrowInvalid("--lora-targets matches no linear layer");
  return trained;
}

class Trainer {
 public:
  Trainer(const Options& options, std::string text)
      : o_(options),
        text_(std::move(text)),
        parameters_(MakeParameters(options)),
        model_(MakeModel(parameters_, options.model)),
        params_(Trained(parameters_)),
        dropout_(options.seed_dropout, RandomStream::kDropout),
        data_(options.seed_data, RandomStream::kData) {}

  absl::Status Run();

 private:
  absl::Status Predict();
  void Step(int64_t step, Optimizer& optimizer);
  void PrintPeak(const Graph& graph, const CostReport& cost);
  std::string UtilizationText(double seconds, int64_t steps) const;
  void PrintEnd() const;
  absl::Status Save() const;

  const Options& o_;
  std::string text_;
  Parameters parameters_;
  std::unique_ptr<Model> model_;
  std::vector<Tensor> params_;
  Random dropout_, data_;
  Graph graph_;  // of the last step
  int64_t predicted_peak_ = 0, measured_peak_ = 0;
  Peak peak_;
  Count model_flops_ = 0, hardware_flops_ = 0;  // of a step
  double loss_ = 0;
};

// The same step on meta, before anything runs.
absl::Status Trainer::Predict() {
  TALLY_ASSIGN_OR_RETURN(const Trace trace, TraceModel(o_.model, {.batch = o_.batch,
                                                                  .sequence = o_.model.context,
                                                                  .policy = o_.policy,
                                                                  .optimizer = o_.optimizer,
                                                                  .accumulate = o_.accumulate,
                                                                  .clip = o_.clip,
                                                                  .documents = o_.documents,
                                                                  .lora = o_.lora}));
  const MemoryReport memory = AnalyzeMemory(trace.graph);
  const CostReport cost = AnalyzeCost(trace.graph);
  predicted_peak_ = memory.peak_bytes;
  if (o_.quiet) return absl::OkStatus();
  std::printf("model: %s d=%d L=%d H=%d context=%d, %s parameters; text: %s bytes\n",
              Name(o_.model.family), static_cast<int>(o_.model.width),
              static_cast<int>(o_.model.layers), static_cast<int>(o_.model.heads),
              static_cast<int>(o_.model.context), ToGrouped(parameters_.numel()).c_str(),
              ToGrouped(text_.size()).c_str());
  std::printf("predicted a step: %s matmul FLOPs, peak %s bytes, %s of them saved for backward\n",
              ToGrouped(cost.model_flops()).c_str(), ToGrouped(predicted_peak_).c_str(),
              ToGrouped(ListResiduals(trace.graph).retained).c_str());
  PrintPeak(trace.graph, cost);
  return absl::OkStatus();
}

void Trainer::PrintPeak(const Graph& graph, const CostReport& cost) {
  model_flops_ = cost.model_flops();
  hardware_flops_ = cost.hardware_flops();
  peak_ = o_.peak;
  if (o_.hardware)
    peak_ = MatmulPeak(*o_.hardware, ContractionDType(graph).value_or(DType::kF32));
  else if (peak_.flops == 0)
    return;
  if (peak_.flops == 0) {
    std::printf("MFU and HFU are not told: %s\n", peak_.name.c_str());
  } else {
    std::printf("MFU and HFU are parts of %s: %s\n", FlopRateText(peak_.flops).c_str(),
                peak_.name.c_str());
  }
}

std::string Trainer::UtilizationText(double seconds, int64_t steps) const {
  const std::optional<Utilization> u =
      MeasureUtilization({.model_flops = model_flops_ * steps,
                          .hardware_flops = hardware_flops_ * steps,
                          .seconds = seconds},
                         peak_);
  if (!u) return "";
  return absl::StrFormat("  MFU %.3g %%  HFU %.3g %%", 100 * u->mfu, 100 * u->hfu);
}

void Trainer::Step(int64_t step, Optimizer& optimizer) {
  const CosineSchedule schedule{o_.lr, o_.lr / 10, std::min<int64_t>(20, o_.steps / 10 + 1),
                                o_.steps};
  optimizer.set_lr(schedule.At(step));
  std::vector<Batch> batches;
  for (int64_t i = 0; i < o_.accumulate; ++i) {
    batches.push_back(TextBatch(text_, o_.batch, o_.model.context, data_));
    batches.back().documents = Lengths(o_.documents);
  }
  ResetPeak(DeviceKind::kCpu);
  Tape tape;
  tape.Watch(params_);
  const Tensor loss = RunStep(
      tape, {*model_, batches, params_, &optimizer, &dropout_, o_.clip, GradientDType(o_.policy)});
  graph_ = tape.Finish();
  measured_peak_ = ThreadMemory(DeviceKind::kCpu).peak - graph_.baseline_bytes;
  loss_ = loss.Item();
}

absl::Status Trainer::Run() {
  TALLY_RETURN_IF_ERROR(Predict());
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                         MakeOptimizer(o_.optimizer, o_.lr));
  optimizer->SetPolicy(o_.policy);
  const double tokens =
      static_cast<double>(o_.batch * o_.model.context) * static_cast<double>(o_.accumulate);
  double start = Seconds();
  int64_t since = 0;
  for (int64_t step = 0; step < o_.steps; ++step) {
    Step(step, *optimizer);
    if (!std::isfinite(loss_)) {
      return absl::OutOfRangeError(
          absl::StrCat("step ", step, ": the loss is no finite number any more; a smaller --lr or ",
                       "--clip may keep it so; ", o_.out, " was not written"));
    }
    ++since;
    if ((step % o_.every == 0 || step + 1 == o_.steps) && !o_.quiet) {
      const double now = Seconds();
      std::printf(
          "step %5d  loss %.4f  %9s tokens/s%s\n", static_cast<int>(step), loss_,
          ToGrouped(static_cast<int64_t>(tokens * static_cast<double>(since) / (now - start)))
              .c_str(),
          UtilizationText(now - start, since).c_str());
      std::fflush(stdout);
      start = now;
      since = 0;
    }
  }
  PrintEnd();
  return Save();
}

void Trainer::PrintEnd() const {
  std::printf("final loss %.4f\n", loss_);
  // The first step makes the optimizer's state and so peaks elsewhere; later ones are as predicted.
  std::printf("peak memory of the last step: predicted %s bytes, measured %s bytes (%s)\n",
              ToGrouped(predicted_peak_).c_str(), ToGrouped(measured_peak_).c_str(),
              predicted_peak_ == measured_peak_ ? "equal"
              : o_.steps == 1                   ? "a first step makes its state on the way"
                                                : "NOT EQUAL");
  if (o_.sample > 0) {
    Random random(o_.seed_data, RandomStream::kUser);
    const std::string prompt = text_.substr(0, std::min<size_t>(16, text_.size()));
    const std::string text =
        Continue(*model_, o_.model.context, prompt, o_.sample, o_.temperature, random);
    std::printf("sample: %s\n", SanitizeForTerminal(text).c_str());
  }
}

// With the graph of the last step where the file can hold it. Nothing that was trained is lost for
// a graph that it cannot: the model is what its config and parameters say.
absl::Status Trainer::Save() const {
  const std::string config = ModelConfigJson({.family = o_.model,
                                              .batch = o_.batch,
                                              .sequence = o_.model.context,
                                              .policy = o_.policy,
                                              .optimizer = o_.optimizer,
                                              .accumulate = o_.accumulate,
                                              .clip = o_.clip,
                                              .documents = o_.documents,
                                              .lora = o_.lora});
  if (const absl::Status s = SaveModel(o_.out, graph_, parameters_.tensors(), config); !s.ok()) {
    TALLY_RETURN_IF_ERROR(
        SaveModel(o_.out, {.tensors = parameters_.named(), .config_json = config}));
    std::fprintf(stderr,
                 "tally-train: %s; saved without the graph of the last step, which graph-report "
                 "traces from the config\n",
                 std::string(s.message()).c_str());
  }
  std::printf("wrote %s\n", o_.out.c_str());
  return absl::OkStatus();
}

int Main(int argc, const char* const* argv) {
  Options options;
  Flags flags = MakeFlags(options);
  const absl::StatusOr<std::vector<std::string>> args = flags.Parse(argc, argv);
  if (!args.ok()) return Fail(2, args.status());
  if (options.help) return std::fputs(flags.Help().c_str(), stdout), 0;
  if (options.version) return std::puts("tally-train " TALLY_VERSION), 0;
  if (absl::Status s = CheckModelFlags(flags, options.lora); !s.ok()) return Fail(2, s);
  if (absl::Status s = SetModel(options); !s.ok()) return Fail(2, s);
  if (absl::Status s = SetPeak(options); !s.ok()) return Fail(2, s);
  if (absl::Status s = CheckOut(options.out); !s.ok()) return Fail(2, s);
  if (args->size() > 1) {
    return Fail(2, absl::InvalidArgumentError(
                       absl::StrCat("one TEXT is enough; got also '", (*args)[1], "'")));
  }
  std::string text(ProjectText());
  if (!args->empty()) {
    absl::StatusOr<std::string> read = ReadText((*args)[0]);
    if (!read.ok()) return Fail(3, read.status());
    text = *std::move(read);
  }
  if (static_cast<int64_t>(text.size()) <= options.model.context) {
    return Fail(3, absl::InvalidArgumentError(
                       absl::StrCat("the text has ", text.size(), " bytes; a context of ",
                                    options.model.context, " needs at least one more")));
  }
  if (options.threads > 0) omp_set_num_threads(static_cast<int>(options.threads));
  try {
    Trainer trainer(options, std::move(text));
    if (absl::Status s = trainer.Run(); !s.ok()) {
      return Fail(s.code() == absl::StatusCode::kOutOfRange        ? 1
                  : s.code() == absl::StatusCode::kInvalidArgument ? 2
                                                                   : 3,
                  s);
    }
  } catch (const Error& e) {
    return Fail(e.status().code() == absl::StatusCode::kInvalidArgument ? 2 : 5, e.status());
  }
  return 0;
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) { return tally::Main(argc, argv); }
