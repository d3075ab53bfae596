#include "tally/nn/mlp.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {
namespace {

void RequirePositive(const char* model, const char* what, int64_t value) {
  if (value < 1)
    ThrowInvalid(absl::StrCat(model, ": ", what, " is ", value, "; it must be 1 or more"));
}

}  // namespace

Mlp::Mlp(Parameters& parameters, const MlpConfig& config) : config_(config) {
  if (config.sizes.size() < 2) ThrowInvalid("mlp: wants at least an input and an output size");
  for (int64_t size : config.sizes) RequirePositive("mlp", "a size", size);
  for (size_t i = 0; i + 1 < config.sizes.size(); ++i) {
    layers_.emplace_back(parameters, absl::StrCat("layers.", i), config.sizes[i],
                         config.sizes[i + 1], LinearOptions{.bias = config.bias});
  }
}

Tensor Mlp::operator()(const Tensor& x) const {
  const int64_t count = static_cast<int64_t>(layers_.size());
  return RunLayers(config_.checkpoints, count, x, [&](int64_t i, Tensor h) {
    Scope scope(absl::StrCat("layers.", i));
    h = layers_[i](h);
    return i + 1 < count ? Activate(config_.activation, h) : h;
  });
}

Tensor Mlp::Loss(const Tensor& x, const Tensor& targets) const {
  const Tensor logits = (*this)(x);
  Scope scope("loss");
  return CrossEntropy(logits, targets);
}

Cruncher::Cruncher(Parameters& parameters, const CruncherConfig& config)
    : checkpoints_(config.checkpoints) {
  RequirePositive("cruncher", "width", config.width);
  RequirePositive("cruncher", "layers", config.layers);
  const double std = config.scaled ? 1 / std::sqrt(static_cast<double>(config.width)) : 1;
  for (int64_t i = 0; i < config.layers; ++i) {
    weights_.push_back(parameters.Normal(absl::StrCat("layers.", i, ".weight"),
                                         {config.width, config.width}, std));
  }
  head_ = parameters.Normal("final.weight", {config.width, 1}, std);
}

Tensor Cruncher::operator()(const Tensor& x) const {
  const Tensor h =
      RunLayers(checkpoints_, static_cast<int64_t>(weights_.size()), x, [&](int64_t i, Tensor in) {
        Scope scope(absl::StrCat("layers.", i));
        return MatMul(in, weights_[i]);
      });
  Scope scope("final");
  return Squeeze(MatMul(h, head_), -1);
}

Tensor Cruncher::Loss(const Tensor& x, const Tensor& target) const {
  const Tensor y = (*this)(x);
  // [B,1] would broadcast to [B,B] without an error.
  if (target.defined() && target.shape() != y.shape()) {
    ThrowInvalid(absl::StrCat("cruncher: the target is ", target.spec().ToString(), ", the output ",
                              y.spec().ToString()));
  }
  Scope scope("loss");
  return Mean(Square(Sub(y, target)));
}

TwoLayerLinear::TwoLayerLinear(Parameters& parameters, const TwoLayerConfig& config)
    : checkpoints_(config.checkpoints) {
  RequirePositive("two_layer", "in", config.in);
  RequirePositive("two_layer", "out", config.out);
  const double std = 1 / std::sqrt(static_cast<double>(config.in));
  w1_ = parameters.Normal("w1", {config.in, config.in}, std);
  w2_ = parameters.Normal("w2", {config.in, config.out}, std);
}

Tensor TwoLayerLinear::operator()(const Tensor& x) const {
  return RunLayers(checkpoints_, 2, x,
                   [&](int64_t i, Tensor h) { return MatMul(h, i == 0 ? w1_ : w2_); });
}

Tensor TwoLayerLinear::Loss(const Tensor& x) const { return Mean(Square((*this)(x))); }

}  // namespace tally
