#include "tally/optim/adam.h"

#include "tally/ops/optimizer_step.h"

namespace tally {

bool Adam::KeepsState(absl::string_view name) const {
  return name == "exp_avg" || name == "exp_avg_sq";
}

void Adam::Update(const Tensor& param, const Tensor& grad, size_t i) {
  const Tensor m = State(i, "exp_avg"), v = State(i, "exp_avg_sq");
  AdamStep({param, Master(i)}, grad, m, v,
           {.lr = options_.lr,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .eps = options_.eps,
            .weight_decay = options_.weight_decay,
            .step = steps()});
}

}  // namespace tally
