#include "tally/ops/losses.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/binary.h"
#include "tally/ops/defined.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/reduce.h"
#include "tally/ops/select.h"
#include "tally/ops/unary.h"

namespace tally {
namespace {

void CheckAlike(const char* name, const Tensor& x, const Tensor& target) {
  RequireDefined(name, {x, target});
  const auto refuse = [&](const char* why) {
    ThrowInvalid(absl::StrCat(name, ": ", why, ": x is ", x.spec().ToString(), ", target is ",
                              target.spec().ToString()));
  };
  if (x.spec() != target.spec()) refuse("x and target differ");
  if (!internal::IsComputingFloat(x.dtype())) refuse("computes on f64, f32, bf16 and f16");
}

Tensor Reduced(const char* name, const Tensor& losses, LossReduction reduction) {
  switch (reduction) {
    case LossReduction::kNone:
      return losses;
    case LossReduction::kMean:
      return Mean(losses);
    case LossReduction::kSum:
      return Sum(losses);
    case LossReduction::kBatchMean:
      break;
  }
  if (losses.rank() == 0) ThrowInvalid(absl::StrCat(name, ": batchmean of a scalar has no batch"));
  return Div(Sum(losses), static_cast<double>(losses.dim(0)));
}

}  // namespace

Tensor MseLoss(const Tensor& x, const Tensor& target, LossReduction reduction) {
  CheckAlike("mse_loss", x, target);
  return Reduced("mse_loss", Square(Sub(x, target)), reduction);
}

Tensor KlDivLoss(const Tensor& log_p, const Tensor& target, const KlDivOptions& options) {
  CheckAlike("kl_div", log_p, target);
  if (options.log_target) {
    return Reduced("kl_div", Mul(Exp(target), Sub(target, log_p)), options.reduction);
  }
  // log 1 where t is 0, so that neither the value nor a gradient of t meets log 0.
  const Tensor log_target = Log(MaskedFill(target, Equal(target, 0.0), 1.0));
  return Reduced("kl_div", Mul(target, Sub(log_target, log_p)), options.reduction);
}

}  // namespace tally
