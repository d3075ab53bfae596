// The configuration of a built-in family as JSON: what a model file carries as "tally.config".
//
//   {"family":"gpt2","vocab":50257,"context":1024,"width":768,"layers":12,"heads":12,"inner":3072,
//    "dropout":0.0,"eps":1e-05,"batch":4,"sequence":128,"dtype":"f32","optimizer":"adamw"}
#ifndef TALLY_IO_MODEL_CONFIG_H_
#define TALLY_IO_MODEL_CONFIG_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/nn/model.h"

namespace tally {

struct ModelConfig {
  FamilyConfig family;
  // The run that the file was written from; absent where it does not say.
  std::optional<int64_t> batch, sequence;
  std::optional<DType> dtype;
  std::optional<std::string> optimizer;
};

std::string ModelConfigJson(const ModelConfig& config);

// kInvalidArgument names the key: a missing or ill-typed size, a size outside [1, 2^40], sizes that
// do not fit each other; kUnimplemented for a family that this version does not know. Unknown keys
// are refused, with what was probably meant left to the caller.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json);

}  // namespace tally

#endif  // TALLY_IO_MODEL_CONFIG_H_
