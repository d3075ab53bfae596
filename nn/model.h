// Model: a built-in family behind one interface, made from its configuration.
// What the programs trace and train, and what a model file names.
#ifndef TALLY_NN_MODEL_H_
#define TALLY_NN_MODEL_H_

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/nn/mlp.h"
#include "tally/nn/transformer.h"

namespace tally {

using FamilyConfig = std::variant<TransformerConfig, MlpConfig, CruncherConfig, TwoLayerConfig>;

// "gpt2", "llama", ..., "mlp", "cruncher", "two-layer".
const char* FamilyName(const FamilyConfig& config);

// The context length of a family that takes sequences, 0 otherwise.
int64_t ContextOf(const FamilyConfig& config);

// A batch as its family takes it: ids, images or features, and targets.
struct Batch {
  Tensor input;
  Tensor target;  // undefined for two-layer
  // What the layers run on: B·T; of images the patches and the class token of each; else rows.
  int64_t tokens = 0;
  Tensor token_types = {};  // BERT's segments; undefined: all 0
  Lengths documents = {};   // packed in every sequence: see Pass
};

class Model {
 public:
  virtual ~Model() = default;
  // The model's output for the batch's input. `dropout` null: dropout off.
  virtual Tensor Forward(const Batch& batch, Random* dropout) const = 0;
  // The scalar loss.
  virtual Tensor Loss(const Batch& batch, Random* dropout) const = 0;
  // Random data of the right specs on the parameters' device, named "ids", "x", "token_types",
  // "targets". `sequence` is ignored by families without one. Throws Error when it is longer than
  // the context.
  virtual Batch MakeBatch(int64_t batch, int64_t sequence, Random& random) const = 0;
};

// Makes the parameters in `parameters`, which must outlive the model. Throws
// Error for sizes that do not fit each other.
std::unique_ptr<Model> MakeModel(Parameters& parameters, const FamilyConfig& config);

// A model by name, with sizes where the family allows: "gpt2-xl", "mlp:784,512,10",
// "cruncher:1024,8" (width, layers), "two-layer:256,64" (in, out), and any field of a transformer:
// "gpt2:layers=2,width=128", "llama-3-8b:layers=4,attention=composed". kNotFound for an unknown
// name (the message has those near), kInvalidArgument for bad sizes.
absl::StatusOr<FamilyConfig> BuiltinConfig(absl::string_view name);

struct Builtin {
  std::string name;
  std::string about;
};
const std::vector<Builtin>& Builtins();

// Elements of all parameters of the family, without making them.
int64_t CountParameters(const FamilyConfig& config);
// Of those that one token runs through: all but the experts it does not go to. Look-up tables
// count whole.
int64_t CountActiveParameters(const FamilyConfig& config);

}  // namespace tally

#endif  // TALLY_NN_MODEL_H_
