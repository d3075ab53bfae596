// The configuration of a built-in family as JSON: what a model file carries as "tally.config".
//
//   {"family":"gpt2","vocab":50257,"context":1024,"width":768,"layers":12,"heads":12,"inner":3072,
//    "dropout":0.0,"eps":1e-05,"batch":4,"sequence":128,"dtype":"f32","optimizer":"adamw"}
//
// A transformer has the keys of TransformerFields (nn/transformer_config.h). Those from "vocab" to
// "eps" above are always written (of images "width", "layers", "heads", "image", "patch" and
// "classes" in place of the first two) and the sizes among them must be there to be read; any other
// is written where it is not the family's default and may be left out.
#ifndef TALLY_IO_MODEL_CONFIG_H_
#define TALLY_IO_MODEL_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/nn/model.h"
#include "tally/optim/policy.h"

namespace tally {

struct ModelConfig {
  FamilyConfig family;
  // The run that the file was written from; absent where it does not say.
  std::optional<int64_t> batch, sequence;
  // "dtype":"mixed", one of PolicyNames. In a file of before there were policies "f32" is the same
  // and no other was written by a program; a hand-written "bf16" had f32 moments, which is
  // "bf16-f32opt" now.
  std::optional<DTypePolicy> policy;
  std::optional<std::string> optimizer;
  // "accumulate":4,"clip":1.0, written where they are not these.
  int64_t accumulate = 1;  // micro-batches a step
  double clip = 0;         // global norm of the gradients; 0: none
  // The packed documents of each sequence: "documents":[96,32]. Empty: none.
  std::vector<int64_t> documents;
  // "lora":{"rank":8,"alpha":16.0,"seed":0,"layers":["h.0.attn.c_attn"]}: the layers that the
  // targets match are written by name; all but the rank may be left out. Rank 0: none.
  LoraOptions lora;
};

// Throws Error for a policy without a name of its own, and where adapters are wanted and the model
// has no layer for them, or does not fit.
std::string ModelConfigJson(const ModelConfig& config);

// kInvalidArgument names the key: a missing or ill-typed field, a size outside its range, sizes
// that do not fit each other; kUnimplemented for a family that this version does not know. Unknown
// keys are refused, with what was probably meant left to the caller.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json);

}  // namespace tally

#endif  // TALLY_IO_MODEL_CONFIG_H_
