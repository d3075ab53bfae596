#include "tally/optim/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/ops/recorder.h"

namespace tally {

void Optimizer::Step(absl::Span<const Tensor> params, absl::Span<const Tensor> grads) {
  if (params.size() != grads.size()) {
    ThrowInvalid(
        absl::StrCat(name(), ": ", params.size(), " parameters but ", grads.size(), " gradients"));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].defined())
      ThrowInvalid(absl::StrCat(name(), ": parameter ", i, " is undefined"));
  }
  if (specs_.empty()) {
    PlaceRestoredState(params.size());
    for (const Tensor& p : params) specs_.push_back(p.spec());
  }
  if (specs_.size() != params.size()) {
    ThrowInvalid(absl::StrCat(name(), ": ", params.size(), " parameters now, ", specs_.size(),
                              " at the first step; state belongs to positions"));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].spec() != specs_[i]) {
      ThrowInvalid(absl::StrCat(name(), ": parameter ", i, " is ", params[i].spec().ToString(),
                                ", it was ", specs_[i].ToString(), " at the first step"));
    }
    if (grads[i].defined() && grads[i].spec() != specs_[i]) {
      ThrowInvalid(absl::StrCat(name(), ": gradient ", i, " is ", grads[i].spec().ToString(),
                                ", its parameter is ", specs_[i].ToString()));
    }
    if (grads[i].defined() && grads[i].device() != params[i].device()) {
      ThrowInvalid(absl::StrCat(name(), ": gradient ", i, " is on ", grads[i].device().ToString(),
                                ", its parameter on ", params[i].device().ToString()));
    }
  }
  ScopedPhase phase(Phase::kOptimizer);
  Scope scope("optimizer");
  ++steps_;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!grads[i].defined()) continue;
    current_ = &params[i];
    Update(params[i], grads[i], i);
  }
  current_ = nullptr;
}

Tensor Optimizer::State(size_t i, const std::string& name, const TensorSpec& spec) {
  TALLY_CHECK(current_ != nullptr && i < by_param_.size()) << "State outside of Update";
  for (size_t s : by_param_[i]) {
    if (state_[s].name != name) continue;
    if (state_[s].tensor.spec() != spec) {
      ThrowInvalid(absl::StrCat(this->name(), ": the restored ", name, " of parameter ", i, " is ",
                                state_[s].tensor.spec().ToString(), "; it must be ",
                                spec.ToString()));
    }
    return state_[s].tensor;
  }
  Tensor tensor = Tensor::Zeros(spec, current_->device());
  std::string param(current_->storage().name());
  if (param.empty()) param = absl::StrCat("param.", i);
  Declare(tensor, Origin::kOptimizerState, absl::StrCat(param, ".", name));
  by_param_[i].push_back(state_.size());
  state_.push_back({i, name, tensor});
  return tensor;
}

void Optimizer::Restore(int64_t steps, std::vector<OptimizerState> state) {
  if (steps_ != 0) ThrowInvalid(absl::StrCat(name(), ": Restore after the first step"));
  for (const OptimizerState& s : state) {
    if (!s.tensor.defined()) {
      ThrowInvalid(
          absl::StrCat(name(), ": Restore of an undefined ", s.name, " of parameter ", s.param));
    }
  }
  steps_ = steps;
  state_ = std::move(state);
}

void Optimizer::PlaceRestoredState(size_t params) {
  by_param_.assign(params, {});
  for (size_t s = 0; s < state_.size(); ++s) {
    if (state_[s].param >= params) {
      ThrowInvalid(absl::StrCat(name(), ": the restored ", state_[s].name, " is of parameter ",
                                state_[s].param, "; there are ", params));
    }
    by_param_[state_[s].param].push_back(s);
  }
}

}  // namespace tally
