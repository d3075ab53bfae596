#include "tally/tools/graph_report/source.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tally/io/model_config.h"
#include "tally/io/model_file.h"
#include "tally/io/text.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

// Blocks times micro-batches: what a trace has nodes for. At this limit
// the graph of a GPT-2 and its JSON take a few GB.
constexpr int64_t kMostBlocks = 5'000;

int64_t BlocksOf(const FamilyConfig& family) {
  if (const auto* transformer = std::get_if<TransformerConfig>(&family)) return transformer->layers;
  if (const auto* cruncher = std::get_if<CruncherConfig>(&family)) return cruncher->layers;
  if (const auto* mlp = std::get_if<MlpConfig>(&family))
    return static_cast<int64_t>(mlp->sizes.size());
  return 2;
}

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

absl::StatusOr<LoadedModel> TraceFamily(const FamilyConfig& family, const TraceOptions& trace,
                                        ReportSource source) {
  if (BlocksOf(family) > kMostBlocks / trace.accumulate) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.name, ": ", BlocksOf(family), " blocks, ", trace.accumulate,
                     " times; a trace takes at most ", kMostBlocks, " blocks in all"));
  }
  if (trace.sequence > 0 && ContextOf(family) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.name, ": --seq: a ", FamilyName(family), " takes ",
        TakesImages(family) ? "images" : "rows", ", not sequences; their number is --batch"));
  }
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
  if (trace.accumulate > 1)
    absl::StrAppend(&loaded.source.origin, ", ", trace.accumulate, " micro-batches");
  if (!trace.freeze.empty())
    absl::StrAppend(&loaded.source.origin, ", frozen: ", Quoted(trace.freeze));
  if (!trace.attention.empty())
    absl::StrAppend(&loaded.source.origin, ", ", trace.attention, " attention");
  if (!trace.documents.empty()) {
    absl::StrAppend(&loaded.source.origin, ", documents of ",
                    absl::StrJoin(trace.documents, " + "));
  }
  if (trace.lora.rank > 0)
    absl::StrAppend(&loaded.source.origin, ", adapters of rank ", trace.lora.rank);
  return loaded;
}

// The names of the ops that update, without the underscore that says so: what is known of an
// optimizer from its graph alone.
std::string RecordedOptimizer(const Graph& graph) {
  std::set<std::string> ops;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kOptimizer && node.op->kind == OpKind::kUpdate)
      ops.insert(std::string(absl::StripSuffix(node.op->name, "_")));
  }
  return absl::StrJoin(ops, ", ");
}

// The flags that were given, over what the file says of its own run.
TraceOptions Merge(const ReportOptions& options, const ModelConfig& config) {
  TraceOptions trace = options.trace;
  const auto given = [&](const char* flag) {
    return std::find(options.run_flags.begin(), options.run_flags.end(), flag) !=
           options.run_flags.end();
  };
  if (config.batch && !given("--batch")) trace.batch = *config.batch;
  if (config.sequence && !given("--seq") && ContextOf(config.family) > 0)
    trace.sequence = *config.sequence;
  if (config.dtype && !given("--dtype")) trace.dtype = *config.dtype;
  if (config.optimizer && !given("--optimizer")) trace.optimizer = *config.optimizer;
  // Documents are those of a sequence of the file's length.
  if (!given("--documents") && !given("--seq")) trace.documents = config.documents;
  if (!given("--lora")) trace.lora = config.lora;
  return trace;
}

absl::StatusOr<LoadedModel> FromFile(ModelFile file, ReportSource source,
                                     const ReportOptions& options) {
  std::optional<ModelConfig> config;
  if (!file.config_json.empty()) {
    absl::StatusOr<ModelConfig> parsed = ParseModelConfig(file.config_json);
    if (parsed.ok()) config = *std::move(parsed);
    // A graph can be reported without it.
    else if (!file.graph || !options.run_flags.empty())
      return Malformed(
          absl::Status(parsed.status().code(),
                       absl::StrCat(file.path, ": \"tally.config\": ", parsed.status().message())));
  }
  source.format = file.format;
  if (config) absl::StrAppend(&source.format, " with a ", FamilyName(config->family), " config");
  if (config && (!options.run_flags.empty() || !file.graph)) {
    source.origin = file.graph ? absl::StrCat("traced again on meta for ",
                                              absl::StrJoin(options.run_flags, " "))
                               : "traced on meta from its config";
    absl::StatusOr<LoadedModel> loaded =
        TraceFamily(config->family, Merge(options, *config), std::move(source));
    if (loaded.ok() || !options.run_flags.empty()) return loaded;
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
    if (config->optimizer && !source.optimizer.empty()) source.optimizer = *config->optimizer;
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

}  // namespace

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
  std::vector<std::string> names;
  for (const Builtin& b : Builtins()) names.push_back(b.name);
  const std::string near = Nearest(model, names);
  return absl::DataLossError(absl::StrCat(
      Quoted(model), ": no such file, and no built-in model; there are ",
      absl::StrJoin(names, ", "), near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
}

}  // namespace tally
