// The published transformers by name.
#ifndef TALLY_NN_PRESETS_H_
#define TALLY_NN_PRESETS_H_

#include <string>

#include "absl/status/status.h"
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

// Sets the fields of "layers=2,width=128". kInvalidArgument for a field that there is not (with
// what was probably meant: "ff" is inner), a value that is none of its values, a field given twice.
absl::Status SetFields(TransformerConfig& config, absl::string_view fields);

// kInvalidArgument where one of those fields says nothing about `config`, which has them set: the
// vocabulary of a model of images, rope_theta without rotary positions.
absl::Status CheckFieldsAreUsed(const TransformerConfig& config, absl::string_view fields);

// What a field takes, in words: "a whole number", "true or false", "none, linear or llama3".
std::string FieldValues(const TransformerField& field);

}  // namespace tally

#endif  // TALLY_NN_PRESETS_H_
