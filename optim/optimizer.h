// Optimizer: the base of every optimizer, built in or written by a user.
//
// A user's optimizer overrides Update and keeps its state through State(), so that the state is
// counted, named and saved:
//
//   class AdaGrad : public Optimizer {
//    protected:
//     void Update(const Tensor& param, const Tensor& grad, size_t i) override {
//       Tensor sum = State(i, "sum", param.spec());
//       AddInPlace(sum, Square(grad));
//       AddInPlace(param, Mul(Div(grad, Add(Sqrt(sum), 1e-5)), -lr_));
//     }
//     ...
//   };
#ifndef TALLY_OPTIM_OPTIMIZER_H_
#define TALLY_OPTIM_OPTIMIZER_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tally/tensor/tensor.h"

namespace tally {

struct OptimizerState {
  size_t param = 0;  // position in the parameter list
  std::string name;  // "exp_avg"
  Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual const char* name() const = 0;

  // One step: params[i] is updated in place with grads[i]. The same list, in the same order, every
  // time; an undefined gradient skips its parameter. Recorded as Phase::kOptimizer under the scope
  // "optimizer". Throws Error when the lists do not fit each other or the first step's.
  void Step(absl::Span<const Tensor> params, absl::Span<const Tensor> grads);

  // Steps taken.
  int64_t steps() const { return steps_; }
  // State made so far, in order of creation.
  const std::vector<OptimizerState>& state() const { return state_; }
  // Puts back what steps() and state() gave, before the first Step: how a run is resumed.
  void Restore(int64_t steps, std::vector<OptimizerState> state);

 protected:
  // Updates parameter number `i`. steps() already counts this step.
  virtual void Update(const Tensor& param, const Tensor& grad, size_t i) = 0;

  // The state `name` of parameter `i`, made of zeros on the parameter's device at first use and
  // declared as optimizer state "<parameter>.<name>".
  Tensor State(size_t i, const std::string& name, const TensorSpec& spec);

 private:
  void PlaceRestoredState(size_t params);

  std::vector<TensorSpec> specs_;
  std::vector<OptimizerState> state_;
  std::vector<std::vector<size_t>> by_param_;  // indexes into state_
  const Tensor* current_ = nullptr;            // the parameter in Update
  int64_t steps_ = 0;
};

}  // namespace tally

#endif  // TALLY_OPTIM_OPTIMIZER_H_
