#include "tally/optim/rmsprop.h"

#include "tally/ops/optimizer_step.h"

namespace tally {

bool RmsProp::KeepsState(absl::string_view name) const {
  return name == "square_avg" || (options_.centered && name == "grad_avg") ||
         (options_.momentum != 0 && name == "momentum_buffer");
}

void RmsProp::Update(const Tensor& param, const Tensor& grad, size_t i) {
  const Tensor square = State(i, "square_avg");
  const Tensor mean = options_.centered ? State(i, "grad_avg") : Tensor();
  const Tensor buffer = options_.momentum != 0 ? State(i, "momentum_buffer") : Tensor();
  RmsPropStep({param, Master(i)}, grad, square, mean, buffer,
              {.lr = options_.lr,
               .alpha = options_.alpha,
               .eps = options_.eps,
               .weight_decay = options_.weight_decay,
               .momentum = options_.momentum,
               .centered = options_.centered});
}

}  // namespace tally
