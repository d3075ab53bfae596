#include "tally/optim/adagrad.h"

#include "tally/ops/ops.h"

namespace tally {

void AdaGrad::Update(const Tensor& param, const Tensor& grad, size_t i) {
  const size_t before = state().size();
  const Tensor sum = State(i, "sum");
  if (state().size() != before && options_.initial_accumulator != 0) {
    FillInPlace(sum, options_.initial_accumulator);
  }
  const Tensor g = options_.weight_decay == 0 ? grad : Add(grad, Mul(param, options_.weight_decay));
  AddInPlace(sum, Square(g));
  const double rate = options_.lr / (1 + static_cast<double>(steps() - 1) * options_.lr_decay);
  AddInPlace(param, Mul(Div(g, Add(Sqrt(sum), options_.eps)), -rate));
}

}  // namespace tally
