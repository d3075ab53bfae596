#include "tally/io/model_file.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tally/io/file_kind.h"
#include "tally/io/graph_json.h"
#include "tally/io/json.h"
#include "tally/io/text.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr char kFormat[] = "tally";
constexpr char kVersion[] = "1.0";  // a reader refuses a greater first number
constexpr uint32_t kMajor = 1;

absl::Status At(const std::string& path, const absl::Status& status, absl::string_view what) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", what, ": ", status.message()));
}

absl::Status CheckVersion(const SafetensorsFile& file) {
  const std::string* version = file.Metadata("tally.version");
  const std::string text = version == nullptr ? "" : *version;
  uint32_t major = 0;
  if (!absl::SimpleAtoi(text.substr(0, text.find('.')), &major)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name(), ": \"tally.version\" is ", Quoted(text)));
  }
  if (major <= kMajor) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(file.name(),
                                               ": written by a newer tally (file version ",
                                               Quoted(text), "; this one reads ", kVersion, ")"));
}

absl::Status NotOurs(const SafetensorsFile& file) {
  const std::string* format = file.Metadata("format");
  const std::string of = format == nullptr ? "" : absl::StrCat(" of format ", Quoted(*format));
  return absl::UnimplementedError(absl::StrCat(
      file.name(), ": is a safetensors file", of, " with ", file.tensors().size(),
      " tensors, but without a tally graph or config; trace the model and SaveModel it"));
}

absl::StatusOr<ModelFile> FromSafetensors(SafetensorsFile file) {
  ModelFile model;
  model.path = file.name();
  model.format = kFormat;
  const std::string* format = file.Metadata("format");
  const std::string* graph = file.Metadata("tally.graph");
  const std::string* config = file.Metadata("tally.config");
  if (format == nullptr || *format != kFormat || (graph == nullptr && config == nullptr)) {
    return NotOurs(file);
  }
  TALLY_RETURN_IF_ERROR(CheckVersion(file));
  if (graph != nullptr) {
    absl::StatusOr<Graph> read = ParseGraphJson(*graph, "graph");
    if (!read.ok()) return At(model.path, read.status(), "\"tally.graph\"");
    model.graph = *std::move(read);
  }
  if (config != nullptr) {
    absl::StatusOr<Json> json = ParseJson(*config);
    if (!json.ok()) return At(model.path, json.status(), "\"tally.config\"");
    model.config_json = *config;
  }
  model.tensors.emplace(std::move(file));
  return model;
}

bool SchemaIs(const Json& json, absl::string_view prefix) {
  const Json* schema = json.Find("schema");
  return schema != nullptr && schema->is(Json::Kind::kString) &&
         absl::StartsWith(schema->string(), prefix);
}

absl::StatusOr<ModelFile> FromJson(const ByteReader& reader) {
  TALLY_ASSIGN_OR_RETURN(const std::string text, reader.ReadString(0, reader.size()));
  absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok()) {
    return absl::Status(json.status().code(),
                        absl::StrCat(reader.name(), ": ", json.status().message()));
  }
  if (!SchemaIs(*json, "tally.graph/")) {
    const char* what = json->Find("weight_map") != nullptr   ? "is the index of a sharded model"
                       : json->Find("model_type") != nullptr ? "is the config.json of a model"
                       : SchemaIs(*json, "tally.report/")    ? "is a report of tally, for --diff"
                       : SchemaIs(*json, "tally.proof/")     ? "is the proof of a graph, beside it"
                                                             : "is JSON, but no tally graph";
    return absl::UnimplementedError(
        absl::StrCat(reader.name(), ": ", what, "; a graph has \"schema\": \"tally.graph/1\""));
  }
  ModelFile model;
  model.path = reader.name();
  model.format = "graph JSON";
  TALLY_ASSIGN_OR_RETURN(model.graph, GraphFromJson(*json, reader.name()));
  return model;
}

// The metadata of the file, once the contents are known to be sound.
absl::StatusOr<TextPairs> MetadataOf(const ModelContents& contents) {
  TextPairs pairs = {{"format", kFormat}, {"tally.version", kVersion}};
  if (!contents.config_json.empty()) {
    absl::StatusOr<Json> config = ParseJson(contents.config_json);
    if (!config.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the config is no JSON: ", config.status().message()));
    }
    pairs.emplace_back("tally.config", contents.config_json);
  }
  absl::flat_hash_set<std::string> keys = {"format"};
  for (const auto& pair : contents.metadata) {
    if (absl::StartsWith(pair.first, "tally.") || !keys.insert(pair.first).second) {
      return absl::InvalidArgumentError(absl::StrCat("metadata ", Quoted(pair.first), " is taken"));
    }
    pairs.push_back(pair);
  }
  // Last, so that tools that show the head of the header show the short entries.
  if (contents.graph != nullptr) {
    pairs.emplace_back("tally.graph", GraphToJson(*contents.graph).Dump());
  }
  return pairs;
}

}  // namespace

absl::Status SaveModel(const std::string& path, const ModelContents& contents) {
  absl::StatusOr<TextPairs> metadata = MetadataOf(contents);
  if (!metadata.ok()) {
    return absl::Status(metadata.status().code(),
                        absl::StrCat(SanitizeForTerminal(path), ": ", metadata.status().message()));
  }
  return WriteSafetensors(path, contents.tensors, *metadata);
}

absl::Status SaveModel(const std::string& path, const Graph& graph,
                       absl::Span<const Tensor> parameters, const std::string& config_json) {
  std::vector<NamedTensor> named;
  absl::flat_hash_set<std::pair<const Storage*, std::string>> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& t = parameters[i];
    if (!t.defined() || t.device().is_meta()) continue;
    const std::string part = absl::StrCat(t.offset(), " ", t.spec().ToString());
    if (!seen.emplace(&t.storage(), part).second) continue;
    const std::string name(t.storage().name());
    named.push_back({name.empty() ? absl::StrCat("param.", i) : name, t});
  }
  return SaveModel(path, {.graph = &graph, .tensors = named, .config_json = config_json});
}

absl::StatusOr<Tensor> ModelFile::Load(absl::string_view name, Device device) const {
  if (!tensors.has_value()) {
    return absl::NotFoundError(absl::StrCat(path, ": holds no tensors, only a graph"));
  }
  return tensors->Load(name, device);
}

absl::StatusOr<ModelFile> ReadModel(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  return ReadModel(std::move(reader));
}

absl::StatusOr<ModelFile> ReadModel(ByteReader reader) {
  TALLY_ASSIGN_OR_RETURN(const RecognizedFile kind, RecognizeFile(reader));
  if (kind.kind == FileKind::kJson) return FromJson(reader);
  if (kind.kind == FileKind::kSafetensors) {
    TALLY_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Read(std::move(reader)));
    return FromSafetensors(std::move(file));
  }
  if (kind.kind == FileKind::kUnknown) {
    return absl::InvalidArgumentError(
        absl::StrCat(reader.name(), ": byte 0: no model file begins like this"));
  }
  return absl::UnimplementedError(absl::StrCat(reader.name(), ": is ", kind.name,
                                               kind.advice.empty() ? "" : "; ", kind.advice));
}

absl::StatusOr<std::vector<NamedTensor>> LoadTensors(const ModelFile& model, Device device) {
  std::vector<NamedTensor> loaded;
  if (!model.tensors.has_value()) return loaded;
  for (const SafetensorsEntry& entry : model.tensors->tensors()) {
    TALLY_ASSIGN_OR_RETURN(Tensor tensor, model.tensors->Load(entry.name, device));
    loaded.push_back({entry.name, std::move(tensor)});
  }
  return loaded;
}

}  // namespace tally
