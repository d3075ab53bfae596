#include "tally/tools/graph_report/source.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tally/analysis/verify.h"
#include "tally/io/model_config.h"
#include "tally/io/model_file.h"
#include "tally/io/text.h"
#include "tally/tools/graph_report/measure.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

bool TakesImages(const FamilyConfig& family) {
  const auto* transformer = std::get_if<TransformerConfig>(&family);
  return transformer != nullptr && transformer->takes_images();
}

// Letters, digits, '.', '_' and '-': fit to name a folder.
std::string FolderName(absl::string_view text) {
  std::string name;
  for (char c : text) {
    name += absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' ? c : '-';
  }
  return name.empty() || name[0] == '.' ? "model" + name : name;
}

absl::Status Malformed(const absl::Status& status) {
  if (status.ok() || status.code() == absl::StatusCode::kUnimplemented) return status;
  return absl::DataLossError(status.message());
}

absl::Status Usage(const absl::Status& status) {
  return absl::InvalidArgumentError(status.message());
}

std::string OptimizerOf(const TraceOptions& trace) {
  return trace.phase == TracePhase::kTrain ? trace.optimizer : "";
}

// What the step is besides its phase, sizes, dtype and optimizer: ", fused attention, 2
// micro-batches, adapters of rank 8 with alpha 16 on layers that match 'attn'".
std::string RunWords(const FamilyConfig& family, const TraceOptions& trace) {
  std::string text;
  bool fused = false;
  if (const auto* transformer = std::get_if<TransformerConfig>(&family)) {
    const auto attention = static_cast<size_t>(transformer->attention);
    fused = transformer->attention == AttentionKind::kFused;
    absl::StrAppend(&text, ", ", kAttentionNames[attention], " attention");
  }
  if (!trace.checkpoint.empty()) absl::StrAppend(&text, ", checkpoints: ", trace.checkpoint);
  // It runs again for little.
  if (fused && trace.checkpoint == "attention")
    absl::StrAppend(&text, " (a fused one keeps no scores: only a row sum of each is dropped)");
  if (trace.accumulate > 1) absl::StrAppend(&text, ", ", trace.accumulate, " micro-batches");
  if (trace.clip > 0) absl::StrAppend(&text, ", gradients clipped to ", trace.clip);
  if (!trace.freeze.empty()) absl::StrAppend(&text, ", frozen: ", Quoted(trace.freeze));
  if (!trace.documents.empty())
    absl::StrAppend(&text, ", documents of ", absl::StrJoin(trace.documents, " + "));
  const LoraOptions& lora = trace.lora;
  if (lora.rank == 0) return text;
  absl::StrAppend(&text, ", adapters of rank ", lora.rank);
  if (lora.alpha > 0) absl::StrAppend(&text, " with alpha ", lora.alpha);
  if (!lora.layers.empty())
    absl::StrAppend(&text, " on ", lora.layers.size(), " linear layers");
  else if (!lora.targets.empty())
    absl::StrAppend(&text, " on layers that match ", Quoted(lora.targets));
  return text;
}

// Sizes of the run against those of the model, told by their flags.
absl::Status CheckFits(const FamilyConfig& family, const TraceOptions& trace,
                       const std::string& name) {
  if (BlocksOf(family) > kMostBlocks / trace.accumulate) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", BlocksOf(family), " blocks, ", trace.accumulate,
                     " times; a trace takes at most ", kMostBlocks, " blocks in all"));
  }
  const int64_t context = ContextOf(family);
  if (context == 0) {
    if (trace.sequence == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": --seq: ", WithArticle(FamilyName(family)), " takes ",
        TakesImages(family) ? "images" : "rows", ", not sequences; their number is --batch"));
  }
  if (trace.sequence > context) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": --seq=", trace.sequence, " is longer than the model's context of ", context));
  }
  int64_t sum = 0;
  for (int64_t length : trace.documents) {
    if (length > context - sum) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": --documents=", absl::StrJoin(trace.documents, ","),
                       ": together longer than the model's context of ", context));
    }
    sum += length;
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedModel> TraceFamily(const FamilyConfig& family, const TraceOptions& trace,
                                        ReportSource source) {
  TALLY_RETURN_IF_ERROR(CheckFits(family, trace, source.name));
  absl::StatusOr<Trace> traced = TraceModel(family, trace);
  if (!traced.ok()) return Usage(traced.status());
  LoadedModel loaded;
  TALLY_ASSIGN_OR_RETURN(const FamilyConfig traced_family, WithAttention(family, trace.attention));
  loaded.graph = std::move(traced->graph);
  loaded.source = std::move(source);
  loaded.source.family = traced_family;
  loaded.source.batch = trace.batch;
  if (ContextOf(family) > 0) loaded.source.sequence = traced->sequence;
  loaded.source.optimizer = OptimizerOf(trace);
  loaded.source.policy = trace.policy.name;
  loaded.step = {family, trace, /*recorded=*/false};
  absl::StrAppend(&loaded.source.origin, RunWords(traced_family, trace));
  return loaded;
}

// The names of the ops that update, without what says that they do: all that is known of an
// optimizer from its graph alone.
std::string RecordedOptimizer(const Graph& graph) {
  std::set<std::string> ops;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kOptimizer && node.op->kind == OpKind::kUpdate)
      ops.insert(std::string(absl::StripSuffix(absl::StripSuffix(node.op->name, "_"), "_master")));
  }
  return absl::StrJoin(ops, ", ");
}

TracePhase RecordedPhase(const Graph& graph) {
  TracePhase phase = TracePhase::kForward;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kOptimizer) return TracePhase::kTrain;
    if (node.phase == Phase::kBackward) phase = TracePhase::kBackward;
  }
  return phase;
}

// The flags that were given, over what the file says of its own run. kInvalidArgument where a flag
// takes something from it that only another flag can give back.
absl::StatusOr<TraceOptions> Merge(const ReportOptions& options, const ModelConfig& config) {
  TraceOptions trace = options.trace;
  const auto given = [&](const char* flag) {
    return std::find(options.run_flags.begin(), options.run_flags.end(), flag) !=
           options.run_flags.end();
  };
  if (config.batch && !given("--batch")) trace.batch = *config.batch;
  if (config.sequence && !given("--seq") && ContextOf(config.family) > 0)
    trace.sequence = *config.sequence;
  if (config.policy && !given("--dtype")) trace.policy = *config.policy;
  if (config.optimizer && !given("--optimizer")) trace.optimizer = *config.optimizer;
  if (!given("--accumulate")) trace.accumulate = config.accumulate;
  trace.clip = config.clip;
  if (!given("--lora")) trace.lora = config.lora;
  if (given("--documents")) {
    // They say how long a sequence is.
    if (!given("--seq")) trace.sequence = 0;
    return trace;
  }
  trace.documents = config.documents;
  const int64_t length = absl::c_accumulate(config.documents, int64_t{0});
  if (length != 0 && given("--seq") && trace.sequence != length) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seq=", trace.sequence, ": the file packs documents of ",
                     absl::StrJoin(config.documents, " + "), " into each sequence of ", length,
                     "; say with --documents=LEN,LEN... how the new ones are packed; --documents=",
                     trace.sequence, " is one document"));
  }
  return trace;
}

// The parameters of the config against the tensors of its file, if it has any: kDataLoss names the
// first that is missing, of another shape, or left over.
absl::Status CheckTensors(const ModelFile& file, const ModelConfig& config) {
  if (!file.tensors || file.tensors->tensors().empty()) return absl::OkStatus();
  Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
  if (config.lora.rank > 0) parameters.Adapt(config.lora);
  const std::unique_ptr<Model> model = MakeModel(parameters, config.family);
  const auto differ = [&](absl::string_view name, absl::string_view what) {
    return absl::DataLossError(absl::StrCat(
        file.path, ": its \"tally.config\" and its tensors are not of one model: ", Quoted(name),
        " ", what));
  };
  std::map<std::string, Shape> wanted;
  for (const NamedTensor& p : parameters.named()) wanted.emplace(p.name, p.tensor.shape());
  std::set<std::string> held;
  for (const SafetensorsEntry& entry : file.tensors->tensors()) {
    const auto it = wanted.find(entry.name);
    if (it == wanted.end()) return differ(entry.name, "is a tensor, and no parameter");
    if (!absl::c_equal(it->second.dims(), entry.dims)) {
      return differ(entry.name,
                    absl::StrCat("is [", absl::StrJoin(entry.dims, ","), "] in the file, ",
                                 it->second.ToString(), " by the config"));
    }
    held.insert(entry.name);
  }
  for (const NamedTensor& p : parameters.named()) {
    if (held.count(p.name) == 0) return differ(p.name, "is a parameter, and no tensor");
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedModel> FromFile(ModelFile file, ReportSource source,
                                     const ReportOptions& options) {
  // What asks for a step other than the recorded one.
  std::vector<std::string> asking = options.run_flags;
  if (!options.fit.empty()) asking.push_back("--fit");
  std::optional<ModelConfig> config;
  if (!file.config_json.empty()) {
    absl::StatusOr<ModelConfig> parsed = ParseModelConfig(file.config_json);
    if (parsed.ok()) config = *std::move(parsed);
    // A graph can be reported without it.
    else if (!file.graph || !asking.empty())
      return Malformed(
          absl::Status(parsed.status().code(),
                       absl::StrCat(file.path, ": \"tally.config\": ", parsed.status().message())));
  }
  source.format = file.format;
  if (config)
    absl::StrAppend(&source.format, " with ", WithArticle(FamilyName(config->family)), " config");
  if (config && (!asking.empty() || !file.graph)) {
    source.origin = file.graph
                        ? absl::StrCat("traced again on meta for ", absl::StrJoin(asking, " "))
                        : "traced on meta from its config";
    TALLY_RETURN_IF_ERROR(CheckTensors(file, *config));
    TALLY_ASSIGN_OR_RETURN(const TraceOptions trace, Merge(options, *config));
    absl::StatusOr<LoadedModel> loaded = TraceFamily(config->family, trace, std::move(source));
    if (loaded.ok() || !asking.empty()) return loaded;
    return Malformed(absl::Status(absl::StatusCode::kDataLoss,
                                  absl::StrCat(file.path, ": ", loaded.status().message())));
  }
  if (!options.run_flags.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, ": holds a recorded graph and no family to trace again, so ",
        absl::StrJoin(options.run_flags, " "), " cannot change it; report it without"));
  }
  LoadedModel loaded;
  source.origin = "as recorded in the file";
  source.optimizer = RecordedOptimizer(*file.graph);
  if (config) {
    source.family = config->family;
    source.batch = config->batch;
    source.sequence = config->sequence;
    absl::StrAppend(&source.origin, RunWords(config->family, {.accumulate = config->accumulate,
                                                              .clip = config->clip,
                                                              .documents = config->documents,
                                                              .lora = config->lora}));
    if (config->optimizer && !source.optimizer.empty()) source.optimizer = *config->optimizer;
    if (config->policy) source.policy = config->policy->name;
  }
  if (config) {
    TALLY_ASSIGN_OR_RETURN(TraceOptions trace, Merge(options, *config));
    trace.phase = RecordedPhase(*file.graph);
    loaded.step = {config->family, std::move(trace), /*recorded=*/true};
  }
  loaded.graph = *std::move(file.graph);
  loaded.source = std::move(source);
  return loaded;
}

absl::StatusOr<LoadedModel> FromPath(const std::string& path, const ReportOptions& options) {
  absl::StatusOr<ModelFile> file = ReadModel(path);
  if (!file.ok()) return Malformed(file.status());
  ReportSource source;
  source.name = FolderName(fs::path(path).stem().string());
  source.source = SanitizeForTerminal(path);
  return FromFile(*std::move(file), std::move(source), options);
}

// A folder: a native file in it, else what there is.
absl::StatusOr<LoadedModel> FromFolder(const std::string& path, const ReportOptions& options) {
  const std::string shown = SanitizeForTerminal(path);
  std::error_code error;
  std::set<std::string> names;  // a folder gives its entries in any order
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.insert(it->path().filename().string());
  }
  if (error) return absl::DataLossError(absl::StrCat(shown, ": ", error.message()));
  for (const char* name : {"model.bin", "graph.json"}) {
    if (names.count(name) > 0) return FromPath((fs::path(path) / name).string(), options);
  }
  std::vector<std::string> foreign;
  for (const std::string& name : names) {
    if (name == "config.json" || absl::EndsWith(name, ".safetensors") ||
        absl::EndsWith(name, ".index.json") || absl::EndsWith(name, ".bin") ||
        absl::EndsWith(name, ".gguf") || absl::EndsWith(name, ".onnx")) {
      foreign.push_back(SanitizeForTerminal(name));
    }
  }
  if (foreign.empty()) {
    return absl::DataLossError(
        absl::StrCat(shown, ": is a folder without a model file; wanted model.bin in it"));
  }
  return absl::UnimplementedError(
      absl::StrCat(shown, ": is a folder with ", absl::StrJoin(foreign, ", "),
                   ", and without a model.bin of tally; name the file itself if it is one"));
}

// Has a folder, or an extension: letters first, so that the ".5" of "qwen2.5" is none.
bool LooksLikePath(absl::string_view model) {
  if (absl::StrContains(model, '/')) return true;
  model = model.substr(0, model.find(':'));
  const size_t dot = model.rfind('.');
  if (dot == absl::string_view::npos || dot + 1 == model.size()) return false;
  return absl::ascii_isalpha(model[dot + 1]) &&
         absl::c_all_of(model.substr(dot + 1), [](char c) { return absl::ascii_isalnum(c); });
}

}  // namespace

int64_t BlocksOf(const FamilyConfig& family) {
  if (const auto* transformer = std::get_if<TransformerConfig>(&family)) return transformer->layers;
  if (const auto* cruncher = std::get_if<CruncherConfig>(&family)) return cruncher->layers;
  if (const auto* mlp = std::get_if<MlpConfig>(&family))
    return static_cast<int64_t>(mlp->sizes.size());
  return 2;
}

absl::StatusOr<LoadedModel> LoadModel(const std::string& model, const ReportOptions& options) {
  absl::StatusOr<FamilyConfig> builtin = BuiltinConfig(model);
  if (builtin.ok()) {
    ReportSource source;
    source.name = FolderName(model);
    source.source = "built-in";
    source.format = absl::StrCat("family ", FamilyName(*builtin));
    source.origin = "traced on meta";
    return TraceFamily(*builtin, options.trace, std::move(source));
  }
  std::error_code error;
  const fs::file_status status = fs::status(model, error);
  if (fs::is_directory(status)) return FromFolder(model, options);
  if (fs::exists(status)) return FromPath(model, options);
  if (builtin.status().code() == absl::StatusCode::kInvalidArgument) return builtin.status();
  if (LooksLikePath(model)) {
    return absl::DataLossError(absl::StrCat(Quoted(model), ": no such file or folder"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no such file, and ", builtin.status().message(), " (--list-models shows all)"));
}

absl::StatusOr<Report> LoadReport(const std::string& model, const ReportOptions& options,
                                  std::optional<TracedStep>* step) {
  TALLY_ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(model, options));
  ReportRequest request = options.request;
  std::optional<StepRunner> runner;
  const auto make_runner = [&](const char* flag) -> absl::Status {
    TALLY_ASSIGN_OR_RETURN(
        runner, StepRunner::Create(
                    loaded.step, loaded.graph,
                    {.device = options.device, .flag = flag, .tf32 = request.peaks.tf32}));
    return absl::OkStatus();
  };
  if (request.plan_cost == PlanCost::kMeasured && Verify(loaded.graph).ok()) {
    TALLY_RETURN_IF_ERROR(make_runner("--cost=measured"));
    TALLY_ASSIGN_OR_RETURN(MeasuredNodes measured, runner->Nodes(loaded.graph));
    request.measured = std::make_shared<const MeasuredNodes>(std::move(measured));
  }
  if (options.measure && Verify(loaded.graph).ok() && !runner)
    TALLY_RETURN_IF_ERROR(make_runner("--measure"));
  if (step != nullptr) *step = std::move(loaded.step);
  absl::StatusOr<Report> report =
      MakeReport(std::move(loaded.graph), std::move(loaded.source), std::move(request));
  if (report.status().code() == absl::StatusCode::kDataLoss) return report;  // a plan's file
  if (!report.ok()) {
    return absl::DataLossError(absl::StrCat(model,
                                            ": the graph is no record that could have "
                                            "happened: ",
                                            report.status().message()));
  }
  if (options.measure && runner) {
    TALLY_ASSIGN_OR_RETURN(report->measured, runner->Runs(*report));
  }
  return report;
}

}  // namespace tally
