// AdaGrad (Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and
// stochastic optimization", JMLR 2011), as PyTorch defines it. Written as a user would write one:
// from ordinary ops, with nothing of its own for dtypes or masters, which are the base's.
#ifndef TALLY_OPTIM_ADAGRAD_H_
#define TALLY_OPTIM_ADAGRAD_H_

#include "tally/optim/optimizer.h"

namespace tally {

struct AdaGradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator = 0, eps = 1e-10;
};

// sum += g²;  p -= lr / (1 + (t-1)·lr_decay) · g / (sqrt(sum) + eps), t counting from 1; weight
// decay is a term of g. One state a parameter, "sum".
class AdaGrad : public Optimizer {
 public:
  explicit AdaGrad(const AdaGradOptions& options = {}) : options_(options) {}
  const char* name() const override { return "adagrad"; }
  void set_lr(double lr) override { options_.lr = lr; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override;
  bool KeepsState(absl::string_view name) const override { return name == "sum"; }

 private:
  AdaGradOptions options_;
};

}  // namespace tally

#endif  // TALLY_OPTIM_ADAGRAD_H_
