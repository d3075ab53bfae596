// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019).
#ifndef TALLY_OPTIM_ADAMW_H_
#define TALLY_OPTIM_ADAMW_H_

#include "tally/optim/optimizer.h"

namespace tally {

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

// Two states a parameter, "exp_avg" and "exp_avg_sq". One fused op a parameter.
class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options = {}) : options_(options) {}
  const char* name() const override { return "adamw"; }
  void set_lr(double lr) override { options_.lr = lr; }
  const AdamWOptions& options() const { return options_; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override;
  bool TakesNarrow() const override { return true; }
  bool KeepsState(absl::string_view name) const override;

 private:
  AdamWOptions options_;
};

}  // namespace tally

#endif  // TALLY_OPTIM_ADAMW_H_
