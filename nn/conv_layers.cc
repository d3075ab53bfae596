#include "tally/nn/conv_layers.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/ops.h"
#include "tally/ops/rows.h"

namespace tally {

Conv2dLayer::Conv2dLayer(Parameters& parameters, const std::string& name, int64_t in, int64_t out,
                         std::array<int, 2> kernel, const Conv2dLayerOptions& options)
    : options_(options.conv) {
  const int groups = options.conv.groups;
  if (groups < 1 || in % groups != 0) {
    ThrowInvalid(absl::StrCat("conv2d layer ", name, ": groups=", groups, " do not divide ", in,
                              " channels"));
  }
  const Shape shape = {out, in / groups, kernel[0], kernel[1]};
  const double fan_in = static_cast<double>(in / groups * kernel[0] * kernel[1]);
  const double bound = fan_in > 0 ? 1 / std::sqrt(fan_in) : 0;
  weight_ = parameters.Uniform(name + ".weight", shape, bound);
  if (options.bias) bias_ = parameters.Uniform(name + ".bias", {out}, bound);
}

Tensor Conv2dLayer::operator()(const Tensor& x) const {
  return Conv2d(x, weight_, bias_, options_);
}

BatchNormLayer::BatchNormLayer(Parameters& parameters, const std::string& name, int64_t channels,
                               double eps, double momentum)
    : weight_(parameters.Full(name + ".weight", {channels}, 1)),
      bias_(parameters.Full(name + ".bias", {channels}, 0)),
      eps_(eps),
      momentum_(momentum) {
  const TensorSpec spec{StatDType(parameters.dtype()), {channels}};
  running_mean_ = Tensor::Zeros(spec, parameters.device());
  running_var_ = Tensor::Ones(spec, parameters.device());
  Declare(running_mean_, Origin::kInput, name + ".running_mean");
  Declare(running_var_, Origin::kInput, name + ".running_var");
}

Tensor BatchNormLayer::operator()(const Tensor& x) const {
  const BatchNormed batch = BatchNorm(x, weight_, bias_, eps_);
  const int64_t count = x.numel() / std::max<int64_t>(1, x.dim(1));
  UpdateRunning(running_mean_, running_var_, batch, count, momentum_, eps_);
  return batch.y;
}

Tensor BatchNormLayer::Infer(const Tensor& x) const {
  return BatchNormInference(x, weight_, bias_, running_mean_, running_var_, eps_);
}

GroupNormLayer::GroupNormLayer(Parameters& parameters, const std::string& name, int64_t groups,
                               int64_t channels, double eps)
    : weight_(parameters.Full(name + ".weight", {channels}, 1)),
      bias_(parameters.Full(name + ".bias", {channels}, 0)),
      groups_(groups),
      eps_(eps) {}

Tensor GroupNormLayer::operator()(const Tensor& x) const {
  return GroupNorm(x, groups_, weight_, bias_, eps_);
}

}  // namespace tally
