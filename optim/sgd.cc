#include "tally/optim/sgd.h"

#include "tally/ops/optimizer_step.h"

namespace tally {

Sgd::Sgd(const SgdOptions& options) : options_(options) {
  if (options.nesterov && (options.momentum <= 0 || options.dampening != 0)) {
    ThrowInvalid("sgd: Nesterov wants momentum above 0 and dampening 0");
  }
}

bool Sgd::KeepsState(absl::string_view name) const {
  return options_.momentum != 0 && name == "momentum_buffer";
}

void Sgd::Update(const Tensor& param, const Tensor& grad, size_t i) {
  Tensor buffer;
  bool first = false;
  if (options_.momentum != 0) {
    const size_t before = state().size();
    buffer = State(i, "momentum_buffer");
    first = state().size() != before;
  }
  SgdStep({param, Master(i)}, grad, buffer,
          {.lr = options_.lr,
           .momentum = options_.momentum,
           .dampening = options_.dampening,
           .weight_decay = options_.weight_decay,
           .nesterov = options_.nesterov,
           .first = first});
}

}  // namespace tally
