#include "tally/optim/adamw.h"

#include "tally/ops/optimizer_step.h"

namespace tally {

void AdamW::Update(const Tensor& param, const Tensor& grad, size_t i) {
  const TensorSpec spec{StateDType(param.dtype()), param.shape()};
  const Tensor m = State(i, "exp_avg", spec), v = State(i, "exp_avg_sq", spec);
  AdamWStep(param, grad, m, v,
            {.lr = options_.lr,
             .beta1 = options_.beta1,
             .beta2 = options_.beta2,
             .eps = options_.eps,
             .weight_decay = options_.weight_decay,
             .step = steps()});
}

}  // namespace tally
