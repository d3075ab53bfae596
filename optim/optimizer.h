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
//
// It computes in f64 for f64 parameters and in f32 for all others, whatever is kept: narrow
// parameters and gradients reach Update widened, state that a policy keeps narrow is handed out
// widened too, and after Update each is rounded once to what is kept. Under a policy with master
// weights the f32 master of the parameter is what Update gets and writes. All of it is recorded.
// A fused step that does this itself says so by TakesNarrow().
#ifndef TALLY_OPTIM_OPTIMIZER_H_
#define TALLY_OPTIM_OPTIMIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tally/optim/policy.h"
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

  // What is kept in which dtype; before the first step. Without one: state in f64 for f64 and in
  // f32 for narrower parameters, no masters. Masters are kept of bf16 and f16 parameters only; f64
  // parameters always have f64 state. Throws Error for a policy of dtypes that no step takes
  // (f64 beside others, f8, integers), or after the first step.
  void SetPolicy(const DTypePolicy& policy);
  const std::optional<DTypePolicy>& policy() const { return policy_; }

  // One step: params[i] is updated in place with grads[i], which has its dtype or the policy's for
  // gradients. The same list, in the same order, every time; an undefined gradient skips its
  // parameter. Recorded as Phase::kOptimizer under the scope "optimizer". Throws Error when the
  // lists do not fit each other, the first step's, the policy, or what was restored. A step that
  // ends early, as where memory runs out, is not counted; the next one does what was left of it.
  void Step(absl::Span<const Tensor> params, absl::Span<const Tensor> grads);

  // The rate of the steps to come. Throws Error where the optimizer does not override it.
  virtual void set_lr(double lr);

  // Steps taken.
  int64_t steps() const { return steps_; }
  // State made so far, in order of creation: master weights ("master") and the optimizer's own.
  const std::vector<OptimizerState>& state() const { return state_; }
  // Puts back what steps() and state() gave, before the first Step: how a run is resumed. Throws
  // Error with the names of those that this optimizer does not keep; where it cannot tell
  // (KeepsState), Step throws before it makes a state anew beside one that was put back and that it
  // never asked for.
  void Restore(int64_t steps, std::vector<OptimizerState> state);

 protected:
  // Updates parameter number `i`. steps() already counts this step.
  virtual void Update(const Tensor& param, const Tensor& grad, size_t i) = 0;

  // Whether Update takes parameter, gradient and state in the dtypes in which they are kept, and
  // with a Master(i) writes both it and the parameter.
  virtual bool TakesNarrow() const { return false; }

  // Whether `name` is a state of this optimizer, "master" apart. The base does not know, and says
  // yes to all.
  virtual bool KeepsState(absl::string_view name) const;

  // The state `name` of parameter `i`, made of zeros on the parameter's device at first use and
  // declared as optimizer state "<parameter>.<name>". Where `spec` has the dtype of the parameter
  // that Update got, it is kept in the policy's dtype for state; any other dtype is kept as asked.
  Tensor State(size_t i, const std::string& name, const TensorSpec& spec);
  // The same of the parameter's shape, in the dtype that Update computes in; under TakesNarrow in
  // the dtype in which it is kept.
  Tensor State(size_t i, const std::string& name);
  // The master of parameter `i` for an Update that takes narrow parameters; undefined: it has none.
  const Tensor& Master(size_t i) const;

 private:
  struct HandedOut {  // state in the dtype that Update computes in
    size_t state;     // index into state_
    Tensor wide;
  };

  void CheckLists(absl::Span<const Tensor> params, absl::Span<const Tensor> grads) const;
  void Begin(absl::Span<const Tensor> params);
  void PlaceRestoredState(size_t params);
  void UpdateOne(const Tensor& param, const Tensor& grad, size_t i);
  std::string ParameterName(size_t i) const;  // of the parameter in Update
  Tensor MasterOf(const Tensor& param, size_t i);
  DType KeptDType(const Tensor& param) const;
  // Index into state_ of the state of `i`, if there is one; marks it as used.
  std::optional<size_t> FindState(size_t i, absl::string_view name, const TensorSpec& spec);
  size_t AddState(size_t i, const std::string& name, const Tensor& tensor);

  std::optional<DTypePolicy> policy_;
  std::vector<TensorSpec> specs_;
  std::vector<OptimizerState> state_;
  std::vector<bool> restored_;                 // of state_: put back, and not asked for since
  std::vector<std::vector<size_t>> by_param_;  // indexes into state_
  const Tensor* current_ = nullptr;            // the parameter in Update
  Tensor master_;                              // its master
  DType computes_ = DType::kF32;               // what Update gets it in
  std::vector<HandedOut> handed_out_;
  int64_t steps_ = 0;
  size_t next_ = 0;  // the parameter at which the step stopped, where it ended early
};

}  // namespace tally

#endif  // TALLY_OPTIM_OPTIMIZER_H_
