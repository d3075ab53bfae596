// tally-train: trains a small transformer byte by byte on a text file and writes model.bin with its
// graph.
#include <omp.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tally/analysis/cost_report.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/roofline.h"
#include "tally/analysis/utilization.h"
#include "tally/io/model_config.h"
#include "tally/io/model_file.h"
#include "tally/io/table.h"
#include "tally/io/text.h"
#include "tally/optim/schedule.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/gemm.h"
#include "tally/tools/common/flags.h"
#include "tally/tools/common/trace.h"
#include "tally/tools/tally_train/corpus.h"
#include "tally/tools/tally_train/options.h"
#include "tally/tools/tally_train/planned_step.h"

namespace tally {
namespace {

int Fail(int code, const absl::Status& status) {
  std::fprintf(stderr, "tally-train: %s\n", std::string(status.message()).c_str());
  return code;
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Parameters MakeParameters(const TrainOptions& o) {
  Parameters parameters(Random(o.seed_init, RandomStream::kInit), o.policy.parameters, o.device);
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
  Trainer(const TrainOptions& options, std::string text)
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
  absl::Status MakePlanned();
  Batch NextBatch(Random& random) const;
  absl::Status Step(int64_t step, Optimizer& optimizer);
  void PrintPeak(const Graph& graph, const CostReport& cost);
  std::string UtilizationText(double seconds, int64_t steps) const;
  void PrintEnd() const;
  void PrintDevice() const;
  void PrintReserved() const;
  absl::Status Save() const;

  const TrainOptions& o_;
  std::string text_;
  Parameters parameters_;
  std::unique_ptr<Model> model_;
  std::vector<Tensor> params_;
  Random dropout_, data_;
  std::unique_ptr<PlannedStep> planned_;  // where there is a plan
  Graph graph_;                           // of the last step
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
  PrintDevice();
  PrintPeak(trace.graph, cost);
  return absl::OkStatus();
}

// On a GPU: which, and what its products of f32 are made in.
void Trainer::PrintDevice() const {
  if (o_.device.kind != DeviceKind::kCuda) return;
  const absl::StatusOr<GpuStats> gpu = GpuStatsOf(o_.device);
  if (!gpu.ok()) return;
  std::printf("runs on %s, %s; products of f32 in %s\n", o_.device.ToString().c_str(),
              gpu->model.c_str(), o_.tf32 ? "TF32" : "f32");
}

// What the GPU gave for the storages, which the peak is of, and what it holds beside them.
void Trainer::PrintReserved() const {
  if (o_.device.kind != DeviceKind::kCuda) return;
  const absl::StatusOr<GpuStats> gpu = GpuStatsOf(o_.device);
  if (!gpu.ok()) return;
  std::printf(
      "reserved on %s for all steps' storages: at most %s bytes; workspaces beside them: "
      "%s bytes\n",
      o_.device.ToString().c_str(), ToGrouped(gpu->memory.peak_reserved_bytes).c_str(),
      ToGrouped(gpu->workspace_bytes).c_str());
}

void Trainer::PrintPeak(const Graph& graph, const CostReport& cost) {
  model_flops_ = cost.model_flops();
  hardware_flops_ = cost.hardware_flops();
  peak_ = o_.peak;
  if (o_.hardware)
    peak_ =
        MatmulPeak(*o_.hardware, ContractionDType(graph).value_or(DType::kF32), {.tf32 = o_.tf32});
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

absl::Status Trainer::MakePlanned() {
  if (!o_.plan) return absl::OkStatus();
  Random like(o_.seed_data, RandomStream::kUser);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < o_.accumulate; ++i) batches.push_back(NextBatch(like));
  TALLY_ASSIGN_OR_RETURN(planned_, PlannedStep::Create({.model = *model_,
                                                        .parameters = parameters_,
                                                        .config = o_.model,
                                                        .policy = o_.policy,
                                                        .optimizer = o_.optimizer,
                                                        .lora = o_.lora,
                                                        .clip = o_.clip,
                                                        .batches = std::move(batches)},
                                                       *o_.plan));
  const PlanPrice& price = planned_->price();
  hardware_flops_ += price.recompute.matmul;
  predicted_peak_ = price.peak_bytes;
  if (o_.quiet) return absl::OkStatus();
  std::printf("plan %s: peak %s bytes, %s nodes and %s matmul FLOPs again a step%s%s\n",
              planned_->plan().name.c_str(), ToGrouped(price.peak_bytes).c_str(),
              ToGrouped(price.extra_nodes).c_str(), ToGrouped(price.recompute.matmul).c_str(),
              planned_->plan().note.empty() ? "" : "; ", planned_->plan().note.c_str());
  return absl::OkStatus();
}

Batch Trainer::NextBatch(Random& random) const {
  Batch batch = TextBatch(text_, o_.batch, o_.model.context, random, o_.device);
  batch.documents = Lengths(o_.documents);
  return batch;
}

absl::Status Trainer::Step(int64_t step, Optimizer& optimizer) {
  const CosineSchedule schedule{o_.lr, o_.lr / 10, std::min<int64_t>(20, o_.steps / 10 + 1),
                                o_.steps};
  std::vector<Batch> batches;
  for (int64_t i = 0; i < o_.accumulate; ++i) batches.push_back(NextBatch(data_));
  if (planned_ != nullptr) {
    TALLY_ASSIGN_OR_RETURN(const Tensor loss, planned_->Run(batches, schedule.At(step), dropout_));
    measured_peak_ = planned_->measured_peak();
    loss_ = loss.Item();
    return absl::OkStatus();
  }
  optimizer.set_lr(schedule.At(step));
  ResetPeak(o_.device.kind);
  Tape tape;
  tape.Watch(params_);
  const Tensor loss = RunStep(
      tape, {*model_, batches, params_, &optimizer, &dropout_, o_.clip, GradientDType(o_.policy)});
  graph_ = tape.Finish();
  measured_peak_ = ThreadMemory(o_.device.kind).peak - graph_.baseline_bytes;
  loss_ = loss.Item();
  return absl::OkStatus();
}

absl::Status Trainer::Run() {
  TALLY_RETURN_IF_ERROR(Predict());
  TALLY_RETURN_IF_ERROR(MakePlanned());
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Optimizer> optimizer,
                         MakeOptimizer(o_.optimizer, o_.lr));
  optimizer->SetPolicy(o_.policy);
  const double tokens =
      static_cast<double>(o_.batch * o_.model.context) * static_cast<double>(o_.accumulate);
  double start = Seconds();
  int64_t since = 0;
  for (int64_t step = 0; step < o_.steps; ++step) {
    TALLY_RETURN_IF_ERROR(Step(step, *optimizer));
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
              : o_.steps == 1 && !o_.plan       ? "a first step makes its state on the way"
                                                : "NOT EQUAL");
  PrintReserved();
  if (o_.sample > 0) {
    Random random(o_.seed_data, RandomStream::kUser);
    const std::string prompt = text_.substr(0, std::min<size_t>(16, text_.size()));
    const std::string text =
        Continue(*model_, o_.model.context, prompt, o_.sample, o_.temperature, random, o_.device);
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
  Graph planned;
  if (planned_ != nullptr) {
    planned = planned_->graph();
    planned.device = o_.device;  // it was recorded on meta and ran here
  }
  if (const absl::Status s =
          SaveModel(o_.out, planned_ != nullptr ? planned : graph_, parameters_.tensors(), config);
      !s.ok()) {
    TALLY_RETURN_IF_ERROR(
        SaveModel(o_.out, {.tensors = parameters_.named(), .config_json = config}));
    std::fprintf(stderr,
                 "tally-train: %s; saved without the graph of the last step, which graph-report "
                 "traces from the config\n",
                 std::string(s.message()).c_str());
  }
  std::printf("wrote %s\n", o_.out.c_str());
  if (planned_ != nullptr) {
    std::printf(
        "its steps ran by plan %s; its record has each node once: graph-report %s --plan=%s\n",
        planned_->plan().name.c_str(), o_.out.c_str(), planned_->plan().name.c_str());
  }
  return absl::OkStatus();
}

int Main(int argc, const char* const* argv) {
  TrainOptions options;
  Flags flags = MakeTrainFlags(options);
  const absl::StatusOr<std::vector<std::string>> args = flags.Parse(argc, argv);
  if (!args.ok()) return Fail(2, args.status());
  if (options.help) return std::fputs(flags.Help().c_str(), stdout), 0;
  if (options.version) return std::puts("tally-train " TALLY_VERSION), 0;
  if (absl::Status s = CheckTrainOptions(flags, options); !s.ok()) return Fail(2, s);
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
  if (!options.device_note.empty())
    std::fprintf(stderr, "tally-train: %s\n", options.device_note.c_str());
  AllowTf32(options.tf32);
  if (options.threads > 0) omp_set_num_threads(static_cast<int>(options.threads));
  try {
    Trainer trainer(options, std::move(text));
    if (absl::Status s = trainer.Run(); !s.ok()) {
      // kOutOfRange: what was asked for does not hold, a finite loss or a plan within its budget.
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
