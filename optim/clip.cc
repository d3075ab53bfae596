#include "tally/optim/clip.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {

Tensor ClipByGlobalNorm(Tensors& grads, double max_norm) {
  if (!(max_norm > 0))
    ThrowInvalid(absl::StrCat("clip: max_norm is ", max_norm, "; it must be above 0"));
  ScopedPhase phase(Phase::kOptimizer);
  Scope scope("clip");
  Tensor total;
  for (const Tensor& g : grads) {
    if (!g.defined()) continue;
    const DType wide = g.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
    const Tensor sum = Sum(Square(Cast(g, wide)));
    total = total.defined() ? Add(total, sum) : sum;
  }
  if (!total.defined()) ThrowInvalid("clip: no gradient is defined");
  const Tensor norm = Sqrt(total);
  const Tensor one = Fill(norm.spec(), 1.0, norm.device());
  const Tensor scale =
      Minimum(Div(Fill(norm.spec(), max_norm, norm.device()), Add(norm, 1e-6)), one);
  for (Tensor& g : grads) {
    if (g.defined()) g = Mul(g, Cast(scale, g.dtype()));
  }
  return norm;
}

}  // namespace tally
