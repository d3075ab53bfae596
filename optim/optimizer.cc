#include "tally/optim/optimizer.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/ops/copy.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/out_of_memory.h"
#include "tally/ops/recorder.h"
#include "tally/ops/update.h"

namespace tally {
namespace {

constexpr char kMaster[] = "master";

bool IsNarrow(DType dtype) { return IsFloat(dtype) && ItemSize(dtype) == 2; }

}  // namespace

void Optimizer::SetPolicy(const DTypePolicy& policy) {
  if (!specs_.empty()) ThrowInvalid(absl::StrCat(name(), ": SetPolicy after the first step"));
  for (DType dtype : {policy.parameters, policy.gradients, policy.state}) {
    const bool f64 = dtype == DType::kF64;
    if (IsFloat(dtype) && ItemSize(dtype) >= 2 && f64 == (policy.parameters == DType::kF64))
      continue;
    ThrowInvalid(absl::StrCat(
        name(), ": policy ", policy.name, ": ", Name(dtype), " beside ", Name(policy.parameters),
        " parameters; a step takes f64 alone, or f32, bf16 and f16 together"));
  }
  if (policy.master && !IsNarrow(policy.parameters)) {
    ThrowInvalid(absl::StrCat(name(), ": policy ", policy.name, ": master weights of ",
                              Name(policy.parameters), " parameters would be copies of them"));
  }
  policy_ = policy;
}

void Optimizer::set_lr(double) {
  ThrowInvalid(absl::StrCat(name(), ": has no learning rate that can be set"));
}

bool Optimizer::KeepsState(absl::string_view) const { return true; }

void Optimizer::CheckLists(absl::Span<const Tensor> params, absl::Span<const Tensor> grads) const {
  if (params.size() != grads.size()) {
    ThrowInvalid(
        absl::StrCat(name(), ": ", params.size(), " parameters but ", grads.size(), " gradients"));
  }
  if (!specs_.empty() && specs_.size() != params.size()) {
    ThrowInvalid(absl::StrCat(name(), ": ", params.size(), " parameters now, ", specs_.size(),
                              " at the first step; state belongs to positions"));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].defined())
      ThrowInvalid(absl::StrCat(name(), ": parameter ", i, " is undefined"));
    const TensorSpec& spec = params[i].spec();
    if (!specs_.empty() && spec != specs_[i]) {
      ThrowInvalid(absl::StrCat(name(), ": parameter ", i, " is ", spec.ToString(), ", it was ",
                                specs_[i].ToString(), " at the first step"));
    }
    if (!grads[i].defined()) continue;
    const DType dtype = grads[i].dtype();
    const bool by_policy = policy_ && dtype == policy_->gradients;
    if (grads[i].shape() != spec.shape || !(dtype == spec.dtype || by_policy)) {
      ThrowInvalid(absl::StrCat(name(), ": gradient ", i, " is ", grads[i].spec().ToString(),
                                ", its parameter is ", spec.ToString(),
                                policy_
                                    ? absl::StrCat(", and gradients are ", Name(policy_->gradients),
                                                   " under policy ", policy_->name)
                                    : ""));
    }
    if (grads[i].device() != params[i].device()) {
      ThrowInvalid(absl::StrCat(name(), ": gradient ", i, " is on ", grads[i].device().ToString(),
                                ", its parameter on ", params[i].device().ToString()));
    }
  }
}

void Optimizer::Begin(absl::Span<const Tensor> params) {
  const auto fits = [&](const Tensor& p) { return p.dtype() == policy_->parameters; };
  if (policy_ && !params.empty() && !std::any_of(params.begin(), params.end(), fits)) {
    ThrowInvalid(absl::StrCat(name(), ": policy ", policy_->name, " is of ",
                              Name(policy_->parameters), " parameters, and none of the ",
                              params.size(), " is; the first is ", params[0].spec().ToString()));
  }
  PlaceRestoredState(params.size());
  for (const Tensor& p : params) specs_.push_back(p.spec());
}

void Optimizer::Step(absl::Span<const Tensor> params, absl::Span<const Tensor> grads) {
  CheckLists(params, grads);
  if (specs_.empty()) Begin(params);
  ScopedPhase phase(Phase::kOptimizer);
  Scope scope("optimizer");
  ++steps_;
  absl::Cleanup ended_early = [this] { --steps_; };
  for (; next_ < params.size(); ++next_) {
    if (grads[next_].defined()) UpdateOne(params[next_], grads[next_], next_);
  }
  std::move(ended_early).Cancel();
  next_ = 0;
}

void Optimizer::UpdateOne(const Tensor& param, const Tensor& grad, size_t i) {
  const absl::Cleanup forget = [this] {
    current_ = nullptr;
    master_ = Tensor();
    handed_out_.clear();
  };
  current_ = &param;
  master_ = MasterOf(param, i);
  if (TakesNarrow()) {
    computes_ = param.dtype();
    return Update(param, grad, i);
  }
  computes_ = StateDType(param.dtype());
  {
    const Tensor wide = master_.defined() ? master_ : Cast(param, computes_);
    Update(wide, Cast(grad, computes_), i);
    if (param.dtype() != computes_) CopyInPlace(param, Cast(wide, param.dtype()));
  }
  for (HandedOut& out : handed_out_) {
    const Tensor& kept = state_[out.state].tensor;
    CopyInPlace(kept, Cast(out.wide, kept.dtype()));
    out.wide = Tensor();
  }
}

DType Optimizer::KeptDType(const Tensor& param) const {
  if (param.dtype() == DType::kF64 || !policy_ || policy_->state == DType::kF64)
    return StateDType(param.dtype());
  return policy_->state;
}

Tensor Optimizer::MasterOf(const Tensor& param, size_t i) {
  if (!policy_ || !policy_->master || !IsNarrow(param.dtype())) return Tensor();
  const TensorSpec spec{DType::kF32, param.shape()};
  if (const auto found = FindState(i, kMaster, spec)) return state_[*found].tensor;
  return state_[AddState(i, kMaster, Cast(param, DType::kF32))].tensor;
}

const Tensor& Optimizer::Master(size_t i) const {
  TALLY_CHECK(current_ != nullptr && i < by_param_.size()) << "Master outside of Update";
  return master_;
}

std::optional<size_t> Optimizer::FindState(size_t i, absl::string_view name,
                                           const TensorSpec& spec) {
  for (size_t s : by_param_[i]) {
    if (state_[s].name != name) continue;
    if (state_[s].tensor.spec() != spec) {
      ThrowInvalid(absl::StrCat(this->name(), ": the restored ", name, " of parameter ", i, " is ",
                                state_[s].tensor.spec().ToString(), "; it must be ",
                                spec.ToString()));
    }
    restored_[s] = false;
    return s;
  }
  return std::nullopt;
}

std::string Optimizer::ParameterName(size_t i) const {
  const absl::string_view name = current_->storage().name();
  return name.empty() ? absl::StrCat("param.", i) : std::string(name);
}

size_t Optimizer::AddState(size_t i, const std::string& name, const Tensor& tensor) {
  Declare(tensor, Origin::kOptimizerState, absl::StrCat(ParameterName(i), ".", name));
  by_param_[i].push_back(state_.size());
  state_.push_back({i, name, tensor});
  restored_.push_back(false);
  return state_.size() - 1;
}

Tensor Optimizer::State(size_t i, const std::string& name, const TensorSpec& spec) {
  TALLY_CHECK(current_ != nullptr && i < by_param_.size()) << "State outside of Update";
  if (name == kMaster && master_.defined()) {
    ThrowInvalid(absl::StrCat(this->name(), ": a state named master is the policy's"));
  }
  for (const HandedOut& out : handed_out_) {
    if (state_[out.state].param == i && state_[out.state].name == name) return out.wide;
  }
  TensorSpec kept = spec;
  const bool casts =
      !TakesNarrow() && spec.dtype == computes_ && spec.dtype != KeptDType(*current_);
  if (casts) kept.dtype = KeptDType(*current_);
  std::optional<size_t> s = FindState(i, name, kept);
  if (!s) {
    std::vector<std::string> unasked;
    for (size_t other : by_param_[i]) {
      if (restored_[other]) unasked.push_back(state_[other].name);
    }
    if (!unasked.empty()) {
      ThrowInvalid(absl::StrCat(this->name(), ": parameter ", i, " was restored with ",
                                absl::StrJoin(unasked, ", "), " and without ", name,
                                "; is the state that of another optimizer or policy?"));
    }
    s = AddState(i, name,
                 internal::MakeFor(absl::StrCat(this->name(), ": ", ParameterName(i), ".", name),
                                   [&] { return Tensor::Zeros(kept, current_->device()); }));
  }
  if (!casts) return state_[*s].tensor;
  handed_out_.push_back({*s, Cast(state_[*s].tensor, spec.dtype)});
  return handed_out_.back().wide;
}

Tensor Optimizer::State(size_t i, const std::string& name) {
  TALLY_CHECK(current_ != nullptr) << "State outside of Update";
  return State(i, name, {TakesNarrow() ? KeptDType(*current_) : computes_, current_->shape()});
}

void Optimizer::Restore(int64_t steps, std::vector<OptimizerState> state) {
  if (!specs_.empty()) ThrowInvalid(absl::StrCat(name(), ": Restore after the first step"));
  if (steps < 0) ThrowInvalid(absl::StrCat(name(), ": Restore of ", steps, " steps"));
  std::vector<std::string> foreign;
  for (const OptimizerState& s : state) {
    if (!s.tensor.defined()) {
      ThrowInvalid(
          absl::StrCat(name(), ": Restore of an undefined ", s.name, " of parameter ", s.param));
    }
    if (s.name == kMaster || KeepsState(s.name)) continue;
    if (std::find(foreign.begin(), foreign.end(), s.name) == foreign.end())
      foreign.push_back(s.name);
  }
  if (!foreign.empty()) {
    ThrowInvalid(absl::StrCat(name(), ": keeps no ", absl::StrJoin(foreign, ", "),
                              "; is the state that of another optimizer?"));
  }
  steps_ = steps;
  state_ = std::move(state);
  restored_.assign(state_.size(), true);
}

void Optimizer::PlaceRestoredState(size_t params) {
  std::vector<std::vector<size_t>> by_param(params);
  bool masters = false;
  for (size_t s = 0; s < state_.size(); ++s) {
    if (state_[s].param >= params) {
      ThrowInvalid(absl::StrCat(name(), ": the restored ", state_[s].name, " is of parameter ",
                                state_[s].param, "; there are ", params));
    }
    masters |= state_[s].name == kMaster;
    by_param[state_[s].param].push_back(s);
  }
  const bool keeps = policy_ && policy_->master;
  if (!state_.empty() && masters != keeps) {
    ThrowInvalid(absl::StrCat(
        name(), ": the restored state has ", masters ? "" : "no ", "master weights, and ",
        policy_ ? absl::StrCat("policy ", policy_->name, " ", keeps ? "keeps them" : "keeps none")
                : "without a policy there are none",
        "; give SetPolicy the policy that the run had"));
  }
  by_param_ = std::move(by_param);
}

}  // namespace tally
