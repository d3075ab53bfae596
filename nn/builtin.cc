// Models by name.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/nn/model.h"
#include "tally/nn/nearest.h"
#include "tally/nn/presets.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

absl::Status BadSizes(absl::string_view name, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("model ", name, ": wanted sizes as in ", wanted));
}

// "784,512,10" as integers of at least 1; nullopt when it is something else.
std::optional<std::vector<int64_t>> ParseSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1) return std::nullopt;
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<FamilyConfig> WithFields(absl::string_view name, TransformerConfig config,
                                        absl::string_view fields) {
  absl::Status status = SetFields(config, fields);
  if (fields.empty()) {
    status = absl::InvalidArgumentError("wanted fields after the colon, as in gpt2:layers=2");
  }
  if (status.ok()) status = CheckFieldsAreUsed(config, fields);
  if (status.ok()) {
    try {
      config.Check();
      return config;
    } catch (const Error& e) {
      status = absl::InvalidArgumentError(e.what());
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("model ", name, ": ", status.message()));
}

// Letters and digits in lower case: what people agree on in the name of a model.
std::string Bare(absl::string_view name) {
  std::string bare;
  for (char c : name) {
    if (absl::ascii_isalnum(c)) bare += absl::ascii_tolower(c);
  }
  return bare;
}

// "did you mean llama-3-8b?": the one spelt alike, else those that begin alike, else the nearest.
std::string ProbablyMeant(absl::string_view name) {
  const std::string bare = Bare(name);
  std::vector<std::string> names, begin, bares;
  for (const Builtin& b : Builtins()) {
    names.push_back(b.name);
    bares.push_back(Bare(b.name));
    if (bares.back() == bare) return absl::StrCat("; did you mean ", b.name, "?");
    if (bare.size() >= 3 && absl::StartsWith(bares.back(), bare)) begin.push_back(b.name);
  }
  if (begin.size() > 4) begin.resize(4);
  if (!begin.empty()) return absl::StrCat("; did you mean ", absl::StrJoin(begin, ", "), "?");
  const std::string near = Nearest(bare, bares);
  if (near.empty()) return "";
  return absl::StrCat("; did you mean ",
                      names[std::find(bares.begin(), bares.end(), near) - bares.begin()], "?");
}

std::string About(const Preset& preset) {
  const TransformerConfig c = PresetConfig(preset);
  return absl::StrCat(preset.about, ": d ", c.width, ", L ", c.layers, ", H ", c.heads,
                      c.KvHeads() == c.heads ? "" : absl::StrCat("/", c.KvHeads()));
}

}  // namespace

const std::vector<Builtin>& Builtins() {
  static const std::vector<Builtin>* const list = [] {
    auto* const builtins = new std::vector<Builtin>;
    for (const Preset& preset : Presets()) builtins->push_back({preset.name, About(preset)});
    builtins->push_back({"cruncher", "deep linear net, as cruncher:WIDTH,LAYERS"});
    builtins->push_back({"mlp", "perceptron, as mlp:IN,HIDDEN...,OUT"});
    builtins->push_back({"two-layer", "two linear layers, as two-layer:IN,OUT"});
    return builtins;
  }();
  return *list;
}

absl::StatusOr<FamilyConfig> BuiltinConfig(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits(':', 1));
  const absl::string_view base = parts.first, text = parts.second;
  const bool sized = name.find(':') != absl::string_view::npos;
  for (const Preset& preset : Presets()) {
    if (base != preset.name) continue;
    if (!sized) return PresetConfig(preset);
    return WithFields(name, PresetConfig(preset), text);
  }
  const std::optional<std::vector<int64_t>> sizes = sized ? ParseSizes(text) : std::nullopt;
  if (base == "mlp") {
    if (!sized) return MlpConfig();
    if (!sizes || sizes->size() < 2) return BadSizes(name, "mlp:784,512,10");
    return MlpConfig{.sizes = *sizes};
  }
  if (base == "cruncher") {
    if (!sized) return CruncherConfig();
    if (!sizes || sizes->size() != 2) return BadSizes(name, "cruncher:1024,8");
    return CruncherConfig{.width = (*sizes)[0], .layers = (*sizes)[1]};
  }
  if (base == "two-layer") {
    if (!sized) return TwoLayerConfig();
    if (!sizes || sizes->size() != 2) return BadSizes(name, "two-layer:256,64");
    return TwoLayerConfig{.in = (*sizes)[0], .out = (*sizes)[1]};
  }
  return absl::NotFoundError(
      absl::StrCat("there is no built-in model '", base, "'", ProbablyMeant(base)));
}

}  // namespace tally
