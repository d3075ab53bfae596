// RMSProp (Tieleman and Hinton, lecture 6.5 of "Neural networks for machine learning", 2012), as
// PyTorch defines it: eps outside the root, with momentum and centered variants.
#ifndef TALLY_OPTIM_RMSPROP_H_
#define TALLY_OPTIM_RMSPROP_H_

#include "tally/optim/optimizer.h"

namespace tally {

struct RmsPropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;  // by the variance of the gradient in place of its mean square
};

// States of a parameter: "square_avg", with `centered` "grad_avg", with momentum
// "momentum_buffer". One fused op a parameter.
class RmsProp : public Optimizer {
 public:
  explicit RmsProp(const RmsPropOptions& options = {}) : options_(options) {}
  const char* name() const override { return "rmsprop"; }
  void set_lr(double lr) override { options_.lr = lr; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override;
  bool TakesNarrow() const override { return true; }
  bool KeepsState(absl::string_view name) const override;

 private:
  RmsPropOptions options_;
};

}  // namespace tally

#endif  // TALLY_OPTIM_RMSPROP_H_
