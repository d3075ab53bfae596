// A training step to run plans on: products, GELUs and dropout everywhere.
#ifndef TALLY_TESTS_AUTOGRAD_DROPOUT_CHAIN_H_
#define TALLY_TESTS_AUTOGRAD_DROPOUT_CHAIN_H_

#include <string>
#include <vector>

#include "tally/ops/dropout.h"
#include "tally/ops/linear.h"
#include "tally/ops/reduce.h"
#include "tally/ops/unary.h"
#include "tally/optim/optimizer.h"
#include "tally/tests/plan_harness.h"

namespace tally {

// A chain of `layers` products with a GELU and a dropout each, on [rows, width].
class DropoutChain {
 public:
  explicit DropoutChain(int layers, int64_t width = 16, double p = 0.5, Device device = kCpu)
      : p_(p), device_(device) {
    Random random(3, RandomStream::kInit);
    for (int i = 0; i < layers; ++i) {
      params_.push_back(Tensor::Normal({DType::kF32, {width, width}}, 0, 0.3, random, device));
      Declare(params_.back(), Origin::kParameter, "h." + std::to_string(i) + ".w");
    }
  }
  const std::vector<Tensor>& params() const { return params_; }
  Random& dropout() { return dropout_; }
  Tensor MakeInput(uint64_t seed = 5) const {
    Random random(seed, RandomStream::kData);
    const int64_t width = params_[0].dim(0);
    const Tensor x = Tensor::Normal({DType::kF32, {8, width}}, 0, 1, random, device_);
    Declare(x, Origin::kInput, "x");
    return x;
  }

  Tensor Loss(const Tensor& input) {
    Tensor x = Dropout(input, p_, dropout_);
    for (size_t i = 0; i < params_.size(); ++i) {
      const Scope scope("h." + std::to_string(i));
      x = Dropout(Gelu(Linear(x, params_[i])), p_, dropout_);
    }
    return Mean(Square(Dropout(x, p_, dropout_)));
  }

  // Loss, gradients, and where there is an optimizer the parameters and its state.
  std::vector<Tensor> Step(Tape& tape, const Tensor& x, Optimizer* optimizer = nullptr) {
    tape.Watch(params_);
    const Tensor loss = Loss(x);
    Tensors grads = tape.Gradient(loss, params_);
    std::vector<Tensor> all = {loss};
    if (optimizer == nullptr) {
      all.insert(all.end(), grads.begin(), grads.end());
      return all;
    }
    optimizer->Step(params_, grads);
    all.insert(all.end(), params_.begin(), params_.end());
    for (const OptimizerState& s : optimizer->state()) all.push_back(s.tensor);
    return all;
  }

 private:
  const double p_;
  const Device device_;
  Random dropout_{11, RandomStream::kDropout, 40};
  std::vector<Tensor> params_;
};

inline RecordedStep RecordChain(DropoutChain& chain, Optimizer* optimizer = nullptr,
                                uint64_t seed = 5) {
  Tensor x = chain.MakeInput(seed);
  return RecordStep(
      [&](Tape& tape) {
        std::vector<Tensor> all = chain.Step(tape, x, optimizer);
        x = Tensor();  // the batch dies with the step
        return all;
      },
      {&chain.dropout()});
}

}  // namespace tally

#endif  // TALLY_TESTS_AUTOGRAD_DROPOUT_CHAIN_H_
