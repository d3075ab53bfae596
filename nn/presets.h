// The published transformers by name.
#ifndef TALLY_NN_PRESETS_H_
#define TALLY_NN_PRESETS_H_

#include <string>

#include "absl/types/span.h"
#include "tally/nn/transformer_config.h"

namespace tally {

// A model is its family's defaults and the fields in which its own config file differs from them.
struct Preset {
  const char* name;
  Family family;
  const char* fields;  // "width=1024,layers=24"
  const char* about;
};
absl::Span<const Preset> Presets();

// The config of a preset.
TransformerConfig PresetConfig(const Preset& preset);

// Sets the fields of "layers=2,width=128". The message of an error names what was wrong with it.
absl::Status SetFields(TransformerConfig& config, absl::string_view fields);

}  // namespace tally

#endif  // TALLY_NN_PRESETS_H_
