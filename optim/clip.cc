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
  DType wide = DType::kF32;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    if (!IsFloat(grads[i].dtype())) {
      ThrowInvalid(absl::StrCat("clip: gradient ", i, " is ", grads[i].spec().ToString(),
                                "; only floats have gradients"));
    }
    if (grads[i].dtype() == DType::kF64) wide = DType::kF64;
  }
  Tensor total;
  for (const Tensor& g : grads) {
    if (!g.defined()) continue;
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
