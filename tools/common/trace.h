// TraceModel: one training step of a built-in family, run on meta or cpu under a tape.
#ifndef TALLY_TOOLS_COMMON_TRACE_H_
#define TALLY_TOOLS_COMMON_TRACE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/tape.h"
#include "tally/nn/model.h"
#include "tally/optim/optimizer.h"
#include "tally/optim/policy.h"

namespace tally {

struct PlanBindings;

enum class TracePhase : uint8_t { kForward, kBackward, kTrain };

struct TraceOptions {
  TracePhase phase = TracePhase::kTrain;
  int64_t batch = 1;
  int64_t sequence = 0;     // 0: what the documents add up to, or the context, at most 1,024
  DTypePolicy policy = {};  // f32; parameters, and what the step keeps of them
  std::string optimizer = "adamw";  // kTrain: see MakeOptimizer
  int64_t accumulate = 1;           // micro-batches of `batch` a step, in every phase
  double clip = 0;                  // kTrain: global norm of the gradients; 0: none
  std::string freeze;               // regular expression: parameters whose names contain a match
  std::string attention;            // "fused", "composed"; empty: as the config has it
  std::string checkpoint;           // see ParseLayerCheckpoints; empty: as the config has it
  std::vector<int64_t> documents;   // packed in each sequence; empty: none
  LoraOptions lora;                 // rank 0: none. Else only the adapters are trained
  Device device = kMeta;
  // Where given, gets copies of what the step takes from outside, to run the record again with; not
  // on meta.
  PlanBindings* capture = nullptr;
};

struct Trace {
  Graph graph;
  std::vector<NamedTensor> parameters;
  int64_t sequence = 0;  // as used
  int64_t tokens = 0;    // see Batch, over all micro-batches
};

// A family's name in a sentence: "an mlp", "an opt", "a gpt2".
std::string WithArticle(absl::string_view name);

// The config with `attention` in place of its own kind: kInvalidArgument for a family without
// attention.
absl::StatusOr<FamilyConfig> WithAttention(FamilyConfig config, const std::string& attention);

// The config with checkpoint scopes around its layers: kInvalidArgument for a text that
// ParseLayerCheckpoints does not take and for the attention of a family that has none.
absl::StatusOr<FamilyConfig> WithCheckpoints(FamilyConfig config, const std::string& checkpoint);

// One step on `tape`: the loss and gradients of each micro-batch, their sum, then (where there is
// an optimizer) clipping and the update. Returns the last micro-batch's loss, not yet read by the
// host.
struct StepArgs {
  const Model& model;
  const std::vector<Batch>& batches;
  const std::vector<Tensor>& params;
  Optimizer* optimizer = nullptr;
  Random* dropout = nullptr;
  double clip = 0;
  std::optional<DType> gradients = {};  // as summed and updated with; none: as their parameters
  Tensors* gradients_out = nullptr;     // without an optimizer: the sums, which are then the result
};
Tensor RunStep(Tape& tape, const StepArgs& args);
// Of a step under a policy: none where gradients are as their parameters.
std::optional<DType> GradientDType(const DTypePolicy& policy);

// A name of OptimizerNames, with momentum 0.9 where it says so; kNotFound lists them.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const std::string& name, double lr = 1e-3);
const std::vector<std::string>& OptimizerNames();

// A step as it is in the middle of a run: the optimizer's state exists already. Dropout is on where
// the config has it, in phases other than kForward. kForward watches nothing. Errors: sizes that do
// not fit (kInvalidArgument), a regular expression that is none or matches no parameter, documents
// that do not add up to the sequence.
absl::StatusOr<Trace> TraceModel(const FamilyConfig& config, const TraceOptions& options);

}  // namespace tally

#endif  // TALLY_TOOLS_COMMON_TRACE_H_
