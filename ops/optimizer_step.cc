#include "tally/ops/optimizer_step.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/step_pieces.h"

namespace tally {
namespace internal {

absl::Status CheckStep(const OpCall& call, bool master, size_t states, const char* names) {
  const size_t wanted = 2 + master + states;
  if (call.in.size() != wanted) {
    return InvalidCall(call, absl::StrCat("wants ", wanted, " operands for these attributes"),
                       names);
  }
  const TensorSpec& first = call.in[0];
  for (size_t i = 0; i < wanted; ++i) {
    const TensorSpec& spec = call.in[i];
    if (!IsFloat(spec.dtype) || ItemSize(spec.dtype) < 2) {
      return InvalidCall(call, "updates f64, f32, bf16 and f16 only", names);
    }
    if (spec.shape != first.shape) return InvalidCall(call, "shapes differ", names);
    if ((spec.dtype == DType::kF64) != (first.dtype == DType::kF64)) {
      return InvalidCall(call, "f64 goes with f64 alone", names);
    }
  }
  if (master && first.dtype != StateDType(call.in[2].dtype)) {
    return InvalidCall(call, "the master is f32, or f64 of an f64 parameter", names);
  }
  return absl::OkStatus();
}

TensorArgs StepArgs(const StepTarget& target, const Tensor& grad,
                    std::initializer_list<const Tensor*> states) {
  TensorArgs args;
  if (target.master.defined()) args.push_back(target.master);
  if (!target.master.defined()) args.push_back(target.param);
  args.push_back(grad);
  if (target.master.defined()) args.push_back(target.param);
  for (const Tensor* state : states) {
    if (state != nullptr) args.push_back(*state);
  }
  return args;
}

}  // namespace internal

DType StateDType(DType param) { return param == DType::kF64 ? DType::kF64 : DType::kF32; }

OpFamily OptimizerOps() {
  static const auto* const ops = [] {
    auto* all = new std::vector<const OpDef*>;
    for (OpFamily family : {internal::AdamOps(), internal::SgdOps(), internal::RmsPropOps()}) {
      all->insert(all->end(), family.begin(), family.end());
    }
    return all;
  }();
  return *ops;
}

}  // namespace tally
