// Models by name.
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tally/nn/model.h"

namespace tally {
namespace {

Gpt2Config Gpt2Of(int64_t width, int64_t layers, int64_t heads) {
  return {.width = width, .layers = layers, .heads = heads};
}

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

absl::StatusOr<FamilyConfig> WithGpt2Sizes(absl::string_view name, Gpt2Config config,
                                           absl::string_view sizes) {
  constexpr absl::string_view kWanted = "gpt2:layers=2,width=128,heads=4,vocab=256,context=64";
  for (absl::string_view part : absl::StrSplit(sizes, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const std::pair<absl::string_view, int64_t*> fields[] = {
        {"layers", &config.layers}, {"width", &config.width},     {"heads", &config.heads},
        {"vocab", &config.vocab},   {"context", &config.context}, {"inner", &config.inner}};
    bool found = false;
    for (const auto& [field, target] : fields) {
      if (pair.first != field) continue;
      found = absl::SimpleAtoi(pair.second, target) && *target >= 1;
    }
    if (!found) return BadSizes(name, kWanted);
  }
  return config;
}

}  // namespace

const std::vector<Builtin>& Builtins() {
  static const std::vector<Builtin>* const list = new std::vector<Builtin>{
      {"gpt2", "GPT-2 small: d 768, L 12, H 12, V 50257, T 1024"},
      {"gpt2-medium", "GPT-2 medium: d 1024, L 24, H 16"},
      {"gpt2-large", "GPT-2 large: d 1280, L 36, H 20"},
      {"gpt2-xl", "GPT-2 XL: d 1600, L 48, H 25"},
      {"cruncher", "deep linear net, cruncher:WIDTH,LAYERS (default 64,2)"},
      {"mlp", "multi-layer perceptron, mlp:IN,HIDDEN...,OUT (default 784,512,512,10)"},
      {"two-layer", "two linear layers, two-layer:IN,OUT (default 256,64)"},
  };
  return *list;
}

absl::StatusOr<FamilyConfig> BuiltinConfig(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits(':', 1));
  const absl::string_view base = parts.first, text = parts.second;
  const bool sized = name.find(':') != absl::string_view::npos;
  const std::pair<absl::string_view, Gpt2Config> gpts[] = {{"gpt2", Gpt2Of(768, 12, 12)},
                                                           {"gpt2-medium", Gpt2Of(1024, 24, 16)},
                                                           {"gpt2-large", Gpt2Of(1280, 36, 20)},
                                                           {"gpt2-xl", Gpt2Of(1600, 48, 25)}};
  for (const auto& [gpt, config] : gpts) {
    if (base != gpt) continue;
    if (!sized) return config;
    return WithGpt2Sizes(name, config, text);
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
  std::vector<std::string> names;
  for (const Builtin& b : Builtins()) names.push_back(b.name);
  return absl::NotFoundError(absl::StrCat("there is no built-in model ", base, "; there are ",
                                          absl::StrJoin(names, ", ")));
}

}  // namespace tally
