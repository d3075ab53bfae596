// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015), with weight decay
// as a term of the gradient (L2), as PyTorch's Adam has it. AdamW takes it out of the moments.
#ifndef TALLY_OPTIM_ADAM_H_
#define TALLY_OPTIM_ADAM_H_

#include "tally/optim/optimizer.h"

namespace tally {

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

// Two states a parameter, "exp_avg" and "exp_avg_sq". One fused op a parameter.
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {}) : options_(options) {}
  const char* name() const override { return "adam"; }
  void set_lr(double lr) override { options_.lr = lr; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override;
  bool TakesNarrow() const override { return true; }
  bool KeepsState(absl::string_view name) const override;

 private:
  AdamOptions options_;
};

}  // namespace tally

#endif  // TALLY_OPTIM_ADAM_H_
