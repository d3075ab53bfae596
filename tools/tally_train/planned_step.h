// PlannedStep: training steps that run under a plan, from the first one on.
//
// Each step is recorded on meta, by a twin of the model and its optimizer without bytes, and the
// record is run in the order of the plan on the real tensors. So attributes that change from step
// to step (rates, counts, positions of random numbers) are the recorded ones, and the most that
// lives is what the plan says.
#ifndef TALLY_TOOLS_TALLY_TRAIN_PLANNED_STEP_H_
#define TALLY_TOOLS_TALLY_TRAIN_PLANNED_STEP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/planner.h"
#include "tally/autograd/execute.h"
#include "tally/nn/model.h"
#include "tally/optim/optimizer.h"
#include "tally/optim/policy.h"
#include "tally/tools/common/trace.h"

namespace tally {

class PlannedStep {
 public:
  struct Setup {
    const Model& model;            // the real one
    const Parameters& parameters;  // all of its parameters, the trained ones among them
    TransformerConfig config;      // of it
    DTypePolicy policy;
    std::string optimizer;  // its name
    LoraOptions lora;
    double clip = 0;
    std::vector<Batch> batches;  // like those of every step
  };
  // Makes the plan for steps like this one. kOutOfRange: no plan within the budget, proven or not
  // found, with the bound and its node as graph-report says it. kInvalidArgument: a record that
  // cannot be run again. kDataLoss: a plan's file that cannot be read or is no plan of these steps.
  static absl::StatusOr<std::unique_ptr<PlannedStep>> Create(const Setup& setup,
                                                             const PlanSpec& spec);

  // One step: updates the parameters, moves `dropout` past what was drawn.
  absl::StatusOr<Tensor> Run(const std::vector<Batch>& batches, double lr, Random& dropout);

  const Plan& plan() const { return plan_; }
  const PlanPrice& price() const { return price_; }
  // Of the last run: what lived at the most, in requested bytes.
  int64_t measured_peak() const { return measured_peak_; }
  // The record of the last run.
  const Graph& graph() const { return graph_; }

 private:
  explicit PlannedStep(const Setup& setup);
  absl::Status MakeState(const Setup& setup);
  absl::Status TakeConstants(const Setup& setup);
  absl::Status FindInputs();
  Graph Record(const std::vector<Batch>& batches, double lr, Random& dropout);

  DTypePolicy policy_;
  double clip_ = 0;
  // The twin.
  Parameters twin_parameters_;
  std::unique_ptr<Model> twin_;
  std::vector<Tensor> twin_trained_;
  std::unique_ptr<Optimizer> twin_optimizer_;
  // Real tensors by the name of their storage; those that forward makes on the host, in order.
  std::map<std::string, Tensor> residents_;
  std::vector<Tensor> constants_;
  // What binds each input of the record: a resident, a constant, or a tensor of the batches.
  struct Input {
    ValueId value = kNone;
    Tensor tensor;     // undefined: of the batches
    size_t batch = 0;  // place in BatchTensors
  };
  std::vector<Input> inputs_;
  Graph graph_;
  ValueId loss_ = kNone;  // of the last micro-batch
  Plan plan_;
  PlanPrice price_;
  int64_t measured_peak_ = 0;
};

}  // namespace tally

#endif  // TALLY_TOOLS_TALLY_TRAIN_PLANNED_STEP_H_
