#include "tally/tools/tally_train/planned_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/autograd/bindings.h"
#include "tally/io/plan_maker.h"
#include "tally/io/plan_name.h"
#include "tally/io/summary_plans.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

// In the order in which a step reads them first.
std::vector<Tensor> BatchTensors(const std::vector<Batch>& batches) {
  std::vector<Tensor> tensors;
  for (const Batch& batch : batches) {
    for (const Tensor& t : {batch.input, batch.token_types, batch.target}) {
      if (t.defined()) tensors.push_back(t);
    }
  }
  return tensors;
}

// The same batches without bytes.
std::vector<Batch> OnMeta(const std::vector<Batch>& batches) {
  std::vector<Batch> twins = batches;
  const auto twin = [](Tensor& t) {
    if (!t.defined()) return;
    const std::string name(t.storage().name());
    const Origin origin = t.storage().origin();
    t = Tensor::Zeros(t.spec(), kMeta);
    Declare(t, origin, name);
  };
  for (Batch& batch : twins) {
    twin(batch.input);
    twin(batch.target);
    twin(batch.token_types);
  }
  return twins;
}

Parameters TwinParameters(const PlannedStep::Setup& setup) {
  Parameters parameters(Random(0, RandomStream::kInit), setup.policy.parameters, kMeta);
  if (setup.lora.rank > 0) parameters.Adapt(setup.lora);
  return parameters;
}

std::vector<Tensor> TrainedOf(const Parameters& parameters) {
  std::vector<Tensor> trained;
  for (const NamedTensor& p : parameters.trained()) trained.push_back(p.tensor);
  return trained;
}

absl::Status CannotRun(const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--plan: this step cannot run under a plan: ", why));
}

}  // namespace

PlannedStep::PlannedStep(const Setup& setup)
    : policy_(setup.policy),
      clip_(setup.clip),
      twin_parameters_(TwinParameters(setup)),
      twin_(MakeModel(twin_parameters_, setup.config)),
      twin_trained_(TrainedOf(twin_parameters_)) {}

absl::StatusOr<std::unique_ptr<PlannedStep>> PlannedStep::Create(const Setup& setup,
                                                                 const PlanSpec& spec) {
  std::unique_ptr<PlannedStep> step(new PlannedStep(setup));
  TALLY_RETURN_IF_ERROR(step->MakeState(setup));
  TALLY_RETURN_IF_ERROR(step->TakeConstants(setup));
  // The plan is of a step like all others; the state is then as before it.
  Random dropout(0, RandomStream::kDropout);
  const std::vector<OptimizerState> state = step->twin_optimizer_->state();
  step->graph_ = step->Record(setup.batches, 0, dropout);
  TALLY_RETURN_IF_ERROR(step->FindInputs());
  const Graph& g = step->graph_;
  PlanMaker maker(g, FlopCosts(g));
  absl::StatusOr<PlanAnswer> made = maker.Make(spec);
  if (made.status().code() == absl::StatusCode::kDataLoss)  // of a file
    return absl::DataLossError(absl::StrCat("--plan: ", made.status().message()));
  if (!made.ok()) return CannotRun(std::string(made.status().message()));
  PlanAnswer& answer = *made;
  if (answer.kind != PlanAnswer::kPlan) {
    return absl::OutOfRangeError(absl::StrCat(
        "--plan=", PlanName(spec), ": ", NoPlanText(g, spec.kind, answer, spec.number, false)));
  }
  step->plan_ = std::move(answer.plan);
  step->price_ = std::move(answer.price);
  TALLY_ASSIGN_OR_RETURN(step->twin_optimizer_, MakeOptimizer(setup.optimizer));
  step->twin_optimizer_->SetPolicy(setup.policy);
  step->twin_optimizer_->Restore(0, state);
  return step;
}

// The optimizer's state as its first step makes it: zeros, and masters that are their parameters.
absl::Status PlannedStep::MakeState(const Setup& setup) {
  TALLY_ASSIGN_OR_RETURN(twin_optimizer_, MakeOptimizer(setup.optimizer));
  twin_optimizer_->SetPolicy(policy_);
  twin_optimizer_->Step(twin_trained_, twin_trained_);
  const std::vector<Tensor> real = TrainedOf(setup.parameters);
  for (const Tensor& p : setup.parameters.tensors())
    residents_[std::string(p.storage().name())] = p;
  for (const OptimizerState& s : twin_optimizer_->state()) {
    const std::string name(s.tensor.storage().name());
    const Tensor tensor = s.name == "master"
                              ? CopyOf(Cast(real[s.param], s.tensor.dtype()))
                              : Tensor::Zeros(s.tensor.spec(), setup.parameters.device());
    Declare(tensor, Origin::kOptimizerState, name);
    residents_[name] = tensor;
  }
  return absl::OkStatus();
}

// What forward makes on the host while it runs (tables of positions, masks): forward alone keeps
// nothing and so takes little memory.
absl::Status PlannedStep::TakeConstants(const Setup& setup) {
  Random dropout(0, RandomStream::kDropout);
  Tape tape;
  CaptureBindings capture(tape, CaptureBindings::kShare);
  for (const Batch& batch : setup.batches) setup.model.Loss(batch, &dropout);
  const Graph graph = tape.Finish();
  PlanBindings bindings = capture.Take();
  std::sort(bindings.values.begin(), bindings.values.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [value, tensor] : bindings.values) {
    if (!graph.storages[graph.values[value].storage].resident)
      constants_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

absl::Status PlannedStep::FindInputs() {
  size_t constant = 0, batch = 0;
  for (ValueId v : PlanInputs(graph_)) {
    const Value& value = graph_.values[v];
    const StorageRecord& storage = graph_.storages[value.storage];
    Input input{.value = v};
    if (!storage.resident) {
      if (constant >= constants_.size() || constants_[constant].spec() != value.spec)
        return CannotRun(absl::StrCat(DescribeValue(graph_, v), " is made while it runs"));
      input.tensor = constants_[constant++];
    } else if (storage.origin == Origin::kInput) {
      input.batch = batch++;
    } else {
      const auto found = residents_.find(graph_.name(storage.name));
      if (found == residents_.end() || found->second.spec() != value.spec)
        return CannotRun(absl::StrCat(DescribeValue(graph_, v), " is not known"));
      input.tensor = found->second;
    }
    inputs_.push_back(std::move(input));
  }
  return absl::OkStatus();
}

Graph PlannedStep::Record(const std::vector<Batch>& batches, double lr, Random& dropout) {
  twin_optimizer_->set_lr(lr);
  const std::vector<Batch> twins = OnMeta(batches);
  Tape tape;
  tape.Watch(twin_trained_);
  const Tensor loss = RunStep(tape, {*twin_, twins, twin_trained_, twin_optimizer_.get(), &dropout,
                                     clip_, GradientDType(policy_)});
  loss_ = tape.IdOf(loss);
  return tape.Finish();
}

absl::StatusOr<Tensor> PlannedStep::Run(const std::vector<Batch>& batches, double lr,
                                        Random& dropout) {
  graph_ = Record(batches, lr, dropout);
  TALLY_ASSIGN_OR_RETURN(const PlanExecutor executor, PlanExecutor::Create(graph_, plan_));
  const std::vector<Tensor> data = BatchTensors(batches);
  PlanBindings bindings;
  for (const Input& input : inputs_) {
    if (!input.tensor.defined() && input.batch >= data.size())
      return CannotRun(absl::StrCat(DescribeValue(graph_, input.value), " is of no batch"));
    bindings.Bind(input.value, input.tensor.defined() ? input.tensor : data[input.batch]);
  }
  TALLY_ASSIGN_OR_RETURN(PlanRun run, executor.Run(std::move(bindings)));
  measured_peak_ = run.peak_bytes;
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    if (graph_.outputs[i] == loss_) return run.outputs[i];
  }
  return CannotRun("it has no loss");
}

}  // namespace tally
