// BudgetOf: what every byte of a step's peak is for, and what the model's state takes.
//
// Two accounts that must not be mixed. *At the peak*: each storage that is live at the peak node is
// in exactly one part, so the parts add up to the peak, exactly. *Whole*: parameters, gradients and
// optimizer state, each storage once, whether or not it lives at the peak (the peak is often at the
// end of forward, where no gradient of a parameter exists yet). Bytes a parameter are of the whole.
//
// The parts are read off the record:
//   parameters  origin parameter
//   gradients   of parameters: what the optimizer reads, else the first that Gradient returned
//   moments     optimizer state but master weights
//   master      optimizer state whose name ends in ".master"
//   saved       made by forward (or made again), and read by backward or a rerun at or after the
//               peak; forms of parameters (casts, layout copies) excluded
//   transient   everything else that ops made: its lines say what
//   inputs      data and constants of the user, also those kept for backward
//   workspace   scratch of one op
// Inputs that backward reads are `inputs` here, while ResidualReport::retained holds them too.
#ifndef TALLY_ANALYSIS_BUDGET_H_
#define TALLY_ANALYSIS_BUDGET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/live_steps.h"
#include "tally/autograd/plan.h"

namespace tally {

enum class BudgetPart : uint8_t {
  kParameters,
  kGradients,
  kMoments,
  kMaster,
  kSaved,
  kTransient,
  kInputs,
  kWorkspace,
};
inline constexpr int kNumBudgetParts = 8;
const char* Name(BudgetPart part);  // "parameters", "gradients", "moments", "master", ...

// Bytes of one part, or (in BatchSplit) of one side of it.
struct BudgetParts {
  std::array<int64_t, kNumBudgetParts> bytes{};

  int64_t& operator[](BudgetPart part) { return bytes[static_cast<size_t>(part)]; }
  int64_t operator[](BudgetPart part) const { return bytes[static_cast<size_t>(part)]; }
  int64_t total() const;
};

// The storages of a part that are alike.
struct BudgetLine {
  BudgetPart part = BudgetPart::kParameters;
  std::string what;            // optimizer state: "exp_avg"; transient: "gradients of activations"
  std::optional<DType> dtype;  // of the first value in each; none: scratch, which has none
  int64_t bytes = 0;
  int64_t elements = 0;             // bytes over the size of one; of scratch 0
  std::vector<StorageId> storages;  // ascending. Of a plan, scratch is bytes without a storage
};

// The whole state of the model.
struct ModelStates {
  BudgetParts parts;              // parameters, gradients, moments, master; the others 0
  std::vector<BudgetLine> lines;  // in order of part, then of appearance
  int64_t elements = 0;           // of all parameters, a tied one once

  int64_t total() const { return parts.total(); }
  // Bytes a parameter, of one part or of all. 0 without parameters.
  double per_parameter(BudgetPart part) const;
  double per_parameter() const;
};

struct Budget {
  int64_t peak_bytes = 0;  // AnalyzeMemory's, or the plan's price
  NodeId peak_node = kNone;
  BudgetParts parts;              // add up to peak_bytes
  std::vector<BudgetLine> lines;  // in order of part, then of appearance; add up to their part
  ModelStates states;
};

// As recorded; under a valid plan. n log n in the graph (and the plan).
Budget BudgetOf(const Graph& graph);
Budget BudgetOf(const Graph& graph, const Plan& plan);

ModelStates StatesOf(const Graph& graph);

// What each storage is to the gradients of parameters.
enum class GradientRole : uint8_t {
  kNoGradient,
  kGradient,      // of a parameter, for the whole step
  kMicroGradient  // of a parameter for one micro-batch, to be added to the former
};
std::vector<GradientRole> GradientRoles(const Graph& graph);

// The part of each storage as seen from `steps[at]`: what saved means depends on what still runs.
std::vector<BudgetPart> PartsAt(const Graph& graph, const std::vector<LiveStep>& steps, size_t at);

// "exp_avg" of "h.0.mlp.weight.exp_avg"; "state" where the name has no dot.
std::string StateName(const Graph& graph, StorageId storage);

// The peak's parts, apart by whether they grow with the batch.
//
// No formula says what depends on the batch: the same step is recorded at two batch sizes, the two
// records are laid beside each other node by node, and a storage is batch-dependent exactly when
// its bytes differ.
struct BatchSplit {
  BudgetParts fixed, growing;  // add up to the budget's parts
  // Bytes that `growing` has more in the other record, of the storages that live at this peak.
  int64_t growth = 0;
};

// `budget` is of `graph`; `other` is the same step at another batch. kFailedPrecondition names the
// first node where the records do not fit each other (a copy that one of them does without, say).
absl::StatusOr<BatchSplit> SplitByBatch(const Graph& graph, const Budget& budget,
                                        const Graph& other);

}  // namespace tally

#endif  // TALLY_ANALYSIS_BUDGET_H_
