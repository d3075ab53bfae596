// Stochastic gradient descent, with momentum and Nesterov's variant as PyTorch defines them.
#ifndef TALLY_OPTIM_SGD_H_
#define TALLY_OPTIM_SGD_H_

#include "tally/optim/optimizer.h"

namespace tally {

struct SgdOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

// One state a parameter, "momentum_buffer", when momentum is not 0; none otherwise. One fused op a
// parameter.
class Sgd : public Optimizer {
 public:
  // Throws Error for Nesterov without momentum or with dampening.
  explicit Sgd(const SgdOptions& options = {});
  const char* name() const override { return "sgd"; }
  void set_lr(double lr) override { options_.lr = lr; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override;
  bool TakesNarrow() const override { return true; }
  bool KeepsState(absl::string_view name) const override;

 private:
  SgdOptions options_;
};

}  // namespace tally

#endif  // TALLY_OPTIM_SGD_H_
