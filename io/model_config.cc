#include "tally/io/model_config.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/io/json.h"

namespace tally {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;
constexpr int64_t kMaxLayers = 10000;  // layers are made one by one

// Takes members of an object one by one and remembers which were taken.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object), taken_(object.object().size(), false) {}

  absl::Status Size(absl::string_view key, int64_t min, int64_t* target, int64_t max = kMaxSize) {
    const Json* value = Take(key);
    if (value == nullptr) return Missing(key);
    if (!value->is(Json::Kind::kInteger) || value->integer() < min || value->integer() > max) {
      return Bad(key, absl::StrCat("an integer from ", min, " to ", max));
    }
    *target = value->integer();
    return absl::OkStatus();
  }

  absl::Status Number(absl::string_view key, double* target) {
    const Json* value = Take(key);
    if (value == nullptr) return absl::OkStatus();  // the default stands
    if (!value->is(Json::Kind::kInteger) && !value->is(Json::Kind::kDouble)) {
      return Bad(key, "a number");
    }
    *target = value->number();
    return absl::OkStatus();
  }

  absl::Status Bool(absl::string_view key, bool* target) {
    const Json* value = Take(key);
    if (value == nullptr) return absl::OkStatus();
    if (!value->is(Json::Kind::kBool)) return Bad(key, "true or false");
    *target = value->boolean();
    return absl::OkStatus();
  }

  absl::Status Text(absl::string_view key, std::optional<std::string>* target) {
    const Json* value = Take(key);
    if (value == nullptr) return absl::OkStatus();
    if (!value->is(Json::Kind::kString)) return Bad(key, "a string");
    *target = value->string();
    return absl::OkStatus();
  }

  absl::Status OptionalSize(absl::string_view key, std::optional<int64_t>* target) {
    if (object_.Find(key) == nullptr) return absl::OkStatus();
    int64_t value = 0;
    TALLY_RETURN_IF_ERROR(Size(key, 1, &value));
    *target = value;
    return absl::OkStatus();
  }

  absl::Status Sizes(absl::string_view key, std::vector<int64_t>* target) {
    const Json* value = Take(key);
    if (value == nullptr) return Missing(key);
    if (!value->is(Json::Kind::kArray)) return Bad(key, "a list of sizes");
    target->clear();
    for (const Json& element : value->array()) {
      if (!element.is(Json::Kind::kInteger) || element.integer() < 1 ||
          element.integer() > kMaxSize) {
        return Bad(key, "a list of sizes of at least 1");
      }
      target->push_back(element.integer());
    }
    if (target->size() > kMaxLayers)
      return Bad(key, absl::StrCat("at most ", kMaxLayers, " sizes"));
    return absl::OkStatus();
  }

  absl::Status Texts(absl::string_view key, std::vector<std::string>* target) {
    const Json* value = Take(key);
    if (value == nullptr || !value->is(Json::Kind::kArray)) return Bad(key, "a list of strings");
    target->clear();
    for (const Json& element : value->array()) {
      if (!element.is(Json::Kind::kString)) return Bad(key, "a list of strings");
      target->push_back(element.string());
    }
    return absl::OkStatus();
  }

  static absl::Status Missing(absl::string_view key) {
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" is missing"));
  }
  // The value of a key, null when there is none.
  const Json* Take(absl::string_view key) {
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (object_.object()[i].first != key) continue;
      taken_[i] = true;
      return &object_.object()[i].second;
    }
    return nullptr;
  }
  bool Has(absl::string_view key) const { return object_.Find(key) != nullptr; }

  // After everything known was taken.
  absl::Status Finish() const {
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (!taken_[i]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "config: there is no key \"", object_.object()[i].first, "\" in this family"));
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Bad(absl::string_view key, absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" must be ", wanted));
  }

  const Json& object_;
  std::vector<bool> taken_;
};

// Reads one field of a transformer if it is there.
struct ReadField {
  Reader& reader;
  TransformerConfig& config;
  const char* name;
  absl::Status operator()(int64_t TransformerConfig::*member) const {
    if (!reader.Has(name)) return absl::OkStatus();
    const bool layers = absl::string_view(name) == "layers";
    return reader.Size(name, 0, &(config.*member), layers ? kMaxLayers : kMaxSize);
  }
  absl::Status operator()(double TransformerConfig::*member) const {
    return reader.Number(name, &(config.*member));
  }
  absl::Status operator()(bool TransformerConfig::*member) const {
    return reader.Bool(name, &(config.*member));
  }
  absl::Status operator()(const EnumField& field) const {
    std::optional<std::string> text;
    TALLY_RETURN_IF_ERROR(reader.Text(name, &text));
    if (!text || SetField(config, name, *text)) return absl::OkStatus();
    std::vector<std::string> values(field.names, field.names + CountNames(field));
    return absl::InvalidArgumentError(
        absl::StrCat("config: \"", name, "\" must be one of ", absl::StrJoin(values, ", ")));
  }
  static size_t CountNames(const EnumField& field) {
    size_t n = 0;
    while (field.names[n] != nullptr) ++n;
    return n;
  }
};

// Of these no file may be without.
std::vector<const char*> SizeKeys(const TransformerConfig& config) {
  if (config.takes_images()) return {"width", "layers", "heads", "image", "patch", "classes"};
  return {"vocab", "context", "width", "layers", "heads", "inner"};
}

absl::StatusOr<FamilyConfig> ReadTransformer(Family family, Reader& reader) {
  TransformerConfig c = FamilyDefaults(family);
  for (const char* key : SizeKeys(c)) {
    if (!reader.Has(key)) return Reader::Missing(key);
  }
  for (const TransformerField& field : TransformerFields()) {
    TALLY_RETURN_IF_ERROR(std::visit(ReadField{reader, c, field.name}, field.member));
  }
  return c;
}

absl::Status ReadLora(const Json& json, LoraOptions* lora) {
  Reader reader(json);
  int64_t seed = 0;
  TALLY_RETURN_IF_ERROR(reader.Size("rank", 1, &lora->rank));
  TALLY_RETURN_IF_ERROR(reader.Number("alpha", &lora->alpha));
  if (reader.Has("seed")) TALLY_RETURN_IF_ERROR(reader.Size("seed", 0, &seed, INT64_MAX));
  lora->seed = static_cast<uint64_t>(seed);
  if (reader.Has("layers")) TALLY_RETURN_IF_ERROR(reader.Texts("layers", &lora->layers));
  return reader.Finish();
}

absl::StatusOr<FamilyConfig> ReadMlp(Reader& reader) {
  MlpConfig c;
  std::optional<std::string> activation;
  TALLY_RETURN_IF_ERROR(reader.Sizes("sizes", &c.sizes));
  TALLY_RETURN_IF_ERROR(reader.Text("activation", &activation));
  TALLY_RETURN_IF_ERROR(reader.Bool("bias", &c.bias));
  if (activation && !ActivationFromName(*activation, &c.activation)) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: there is no activation \"", *activation, "\""));
  }
  return c;
}

absl::StatusOr<FamilyConfig> ReadCruncher(Reader& reader) {
  CruncherConfig c;
  TALLY_RETURN_IF_ERROR(reader.Size("width", 1, &c.width));
  TALLY_RETURN_IF_ERROR(reader.Size("layers", 1, &c.layers, kMaxLayers));
  TALLY_RETURN_IF_ERROR(reader.Bool("scaled", &c.scaled));
  return c;
}

absl::StatusOr<FamilyConfig> ReadTwoLayer(Reader& reader) {
  TwoLayerConfig c;
  TALLY_RETURN_IF_ERROR(reader.Size("in", 1, &c.in));
  TALLY_RETURN_IF_ERROR(reader.Size("out", 1, &c.out));
  return c;
}

absl::StatusOr<FamilyConfig> ReadFamily(absl::string_view family, Reader& reader) {
  Family transformer;
  if (FamilyFromName(family, &transformer)) return ReadTransformer(transformer, reader);
  if (family == "mlp") return ReadMlp(reader);
  if (family == "cruncher") return ReadCruncher(reader);
  if (family == "two-layer") return ReadTwoLayer(reader);
  return absl::UnimplementedError(
      absl::StrCat("config: this version knows no family \"", family, "\""));
}

// Sizes that do not fit each other, found by making the model without bytes.
absl::Status CheckSizes(const ModelConfig& config) {
  try {
    Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
    if (config.lora.rank > 0) parameters.Adapt(config.lora);
    MakeModel(parameters, config.family);
    if (config.lora.rank > 0 && parameters.adapted().empty()) {
      return absl::InvalidArgumentError("config: \"lora\": the model has none of these layers");
    }
  } catch (const Error& e) {
    return absl::InvalidArgumentError(absl::StrCat("config: ", e.what()));
  }
  return absl::OkStatus();
}

struct Writer {
  Json& json;
  void operator()(const TransformerConfig& c) {
    const TransformerConfig defaults = FamilyDefaults(c.family);
    const std::vector<const char*> sizes = SizeKeys(c);
    for (const TransformerField& field : TransformerFields()) {
      const absl::string_view name = field.name;
      const bool always = name == "dropout" || name == "eps" ||
                          std::find(sizes.begin(), sizes.end(), name) != sizes.end();
      std::visit(
          [&](const auto& member) {
            if constexpr (std::is_same_v<std::decay_t<decltype(member)>, EnumField>) {
              if (always || member.get(c) != member.get(defaults))
                json.Add(field.name, member.names[member.get(c)]);
            } else {
              if (name == "inner") return static_cast<void>(json.Add("inner", c.Inner()));
              if (always || c.*member != defaults.*member) json.Add(field.name, c.*member);
            }
          },
          field.member);
    }
  }
  void operator()(const MlpConfig& c) {
    Json sizes = Json::Array();
    for (int64_t size : c.sizes) sizes.Append(size);
    json.Add("sizes", sizes).Add("activation", Name(c.activation)).Add("bias", c.bias);
  }
  void operator()(const CruncherConfig& c) {
    json.Add("width", c.width).Add("layers", c.layers).Add("scaled", c.scaled);
  }
  void operator()(const TwoLayerConfig& c) { json.Add("in", c.in).Add("out", c.out); }
};

}  // namespace

std::string ModelConfigJson(const ModelConfig& config) {
  Json json = Json::Object();
  json.Add("family", FamilyName(config.family));
  std::visit(Writer{json}, config.family);
  if (config.batch) json.Add("batch", *config.batch);
  if (config.sequence) json.Add("sequence", *config.sequence);
  if (config.policy) {
    if (FindPolicy(config.policy->name) == nullptr)
      ThrowInvalid(absl::StrCat("config: there is no dtype policy ", config.policy->name));
    json.Add("dtype", config.policy->name);
  }
  if (config.optimizer) json.Add("optimizer", *config.optimizer);
  if (config.accumulate != 1) json.Add("accumulate", config.accumulate);
  if (config.clip != 0) json.Add("clip", config.clip);
  if (!config.documents.empty()) {
    Json documents = Json::Array();
    for (int64_t length : config.documents) documents.Append(length);
    json.Add("documents", documents);
  }
  if (config.lora.rank > 0) {
    Parameters parameters(Random(0, RandomStream::kInit), DType::kF32, kMeta);
    parameters.Adapt(config.lora);
    MakeModel(parameters, config.family);
    if (parameters.adapted().empty()) ThrowInvalid("config: no layer of the model gets adapters");
    Json layers = Json::Array();
    for (const std::string& layer : parameters.adapted()) layers.Append(layer);
    Json lora = Json::Object();
    lora.Add("rank", config.lora.rank).Add("alpha", config.lora.alpha);
    lora.Add("seed", static_cast<int64_t>(config.lora.seed)).Add("layers", layers);
    json.Add("lora", lora);
  }
  return json.Dump();
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text) {
  TALLY_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.bytes = 1 << 20, .depth = 8}));
  if (!json.is(Json::Kind::kObject)) {
    return absl::InvalidArgumentError("config: wanted a JSON object");
  }
  Reader reader(json);
  std::optional<std::string> family, dtype;
  TALLY_RETURN_IF_ERROR(reader.Text("family", &family));
  if (!family) return absl::InvalidArgumentError("config: \"family\" is missing");
  TALLY_ASSIGN_OR_RETURN(const FamilyConfig sizes, ReadFamily(*family, reader));
  ModelConfig config{.family = sizes};
  TALLY_RETURN_IF_ERROR(reader.OptionalSize("batch", &config.batch));
  TALLY_RETURN_IF_ERROR(reader.OptionalSize("sequence", &config.sequence));
  TALLY_RETURN_IF_ERROR(reader.Text("dtype", &dtype));
  TALLY_RETURN_IF_ERROR(reader.Text("optimizer", &config.optimizer));
  if (reader.Has("accumulate")) {
    TALLY_RETURN_IF_ERROR(reader.Size("accumulate", 1, &config.accumulate, 1 << 16));
  }
  TALLY_RETURN_IF_ERROR(reader.Number("clip", &config.clip));
  if (!(config.clip >= 0 && std::isfinite(config.clip))) {
    return absl::InvalidArgumentError("config: \"clip\" must be 0 or more");
  }
  if (reader.Has("documents")) {
    TALLY_RETURN_IF_ERROR(reader.Sizes("documents", &config.documents));
  }
  if (const Json* lora = reader.Take("lora"); lora != nullptr) {
    if (!lora->is(Json::Kind::kObject)) {
      return absl::InvalidArgumentError("config: \"lora\" must be an object");
    }
    TALLY_RETURN_IF_ERROR(ReadLora(*lora, &config.lora));
  }
  if (dtype) {
    const DTypePolicy* policy = FindPolicy(*dtype);
    if (policy == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("config: there is no dtype \"", *dtype,
                                                     "\"; there are ",
                                                     absl::StrJoin(PolicyNames(), ", ")));
    }
    config.policy = *policy;
  }
  TALLY_RETURN_IF_ERROR(reader.Finish());
  TALLY_RETURN_IF_ERROR(CheckSizes(config));
  return config;
}

}  // namespace tally
