#include "tally/io/model_config.h"

#include <vector>

#include "absl/strings/str_cat.h"
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
  const Json* Take(absl::string_view key) {
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (object_.object()[i].first != key) continue;
      taken_[i] = true;
      return &object_.object()[i].second;
    }
    return nullptr;
  }
  static absl::Status Missing(absl::string_view key) {
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" is missing"));
  }
  static absl::Status Bad(absl::string_view key, absl::string_view wanted) {
    return absl::InvalidArgumentError(absl::StrCat("config: \"", key, "\" must be ", wanted));
  }

  const Json& object_;
  std::vector<bool> taken_;
};

absl::StatusOr<FamilyConfig> ReadGpt2(Reader& reader) {
  Gpt2Config c;
  TALLY_RETURN_IF_ERROR(reader.Size("vocab", 1, &c.vocab));
  TALLY_RETURN_IF_ERROR(reader.Size("context", 1, &c.context));
  TALLY_RETURN_IF_ERROR(reader.Size("width", 1, &c.width));
  TALLY_RETURN_IF_ERROR(reader.Size("layers", 1, &c.layers, kMaxLayers));
  TALLY_RETURN_IF_ERROR(reader.Size("heads", 1, &c.heads));
  TALLY_RETURN_IF_ERROR(reader.Size("inner", 0, &c.inner));
  TALLY_RETURN_IF_ERROR(reader.Number("dropout", &c.dropout));
  TALLY_RETURN_IF_ERROR(reader.Number("eps", &c.eps));
  return c;
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
  if (family == "gpt2") return ReadGpt2(reader);
  if (family == "mlp") return ReadMlp(reader);
  if (family == "cruncher") return ReadCruncher(reader);
  if (family == "two-layer") return ReadTwoLayer(reader);
  return absl::UnimplementedError(
      absl::StrCat("config: this version knows no family \"", family, "\""));
}

// Sizes that do not fit each other, found by making the model without bytes.
absl::Status CheckSizes(const FamilyConfig& family) {
  try {
    CountParameters(family);
  } catch (const Error& e) {
    return absl::InvalidArgumentError(absl::StrCat("config: ", e.what()));
  }
  return absl::OkStatus();
}

struct Writer {
  Json& json;
  void operator()(const Gpt2Config& c) {
    json.Add("vocab", c.vocab).Add("context", c.context).Add("width", c.width);
    json.Add("layers", c.layers).Add("heads", c.heads).Add("inner", c.ff());
    json.Add("dropout", c.dropout).Add("eps", c.eps);
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
  if (config.dtype) json.Add("dtype", Name(*config.dtype));
  if (config.optimizer) json.Add("optimizer", *config.optimizer);
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
  if (dtype) {
    config.dtype = DTypeFromName(*dtype);
    if (!config.dtype) {
      return absl::InvalidArgumentError(absl::StrCat("config: there is no dtype \"", *dtype, "\""));
    }
  }
  TALLY_RETURN_IF_ERROR(reader.Finish());
  TALLY_RETURN_IF_ERROR(CheckSizes(config.family));
  return config;
}

}  // namespace tally
