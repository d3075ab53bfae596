// Layers on images, in the style of nn/layers.h. Names of parameters are PyTorch's: NAME.weight,
// NAME.bias.
#ifndef TALLY_NN_CONV_LAYERS_H_
#define TALLY_NN_CONV_LAYERS_H_

#include <array>
#include <cstdint>
#include <string>

#include "tally/nn/parameters.h"
#include "tally/ops/conv.h"

namespace tally {

struct Conv2dLayerOptions {
  Conv2dOptions conv;
  bool bias = true;
};

// Weight [out, in/groups, kh, kw] and bias [out], uniform in ±1/sqrt(in/groups kh kw) as PyTorch.
class Conv2dLayer {
 public:
  Conv2dLayer() = default;
  // `kernel` is (height, width). Throws Error when the groups do not divide `in`.
  Conv2dLayer(Parameters& parameters, const std::string& name, int64_t in, int64_t out,
              std::array<int, 2> kernel, const Conv2dLayerOptions& options = {});
  // x[N, in, H, W] -> [N, out, Ho, Wo]
  Tensor operator()(const Tensor& x) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  Tensor weight_, bias_;
  Conv2dOptions options_;
};

// Over the batch and space, with weight, bias and running statistics. These are no parameters: f32
// (f64 for f64) inputs named NAME.running_mean and NAME.running_var, mean 0 and variance 1 at
// first. `num_batches_tracked` is not kept.
class BatchNormLayer {
 public:
  BatchNormLayer() = default;
  BatchNormLayer(Parameters& parameters, const std::string& name, int64_t channels,
                 double eps = 1e-5, double momentum = 0.1);
  // Training: by the statistics of x [N, channels, ...], which the running ones then follow.
  Tensor operator()(const Tensor& x) const;
  // By the running statistics.
  Tensor Infer(const Tensor& x) const;
  const Tensor& running_mean() const { return running_mean_; }
  const Tensor& running_var() const { return running_var_; }

 private:
  Tensor weight_, bias_, running_mean_, running_var_;
  double eps_ = 1e-5, momentum_ = 0.1;
};

// Over groups of channels, with weight and bias.
class GroupNormLayer {
 public:
  GroupNormLayer() = default;
  GroupNormLayer(Parameters& parameters, const std::string& name, int64_t groups, int64_t channels,
                 double eps = 1e-5);
  Tensor operator()(const Tensor& x) const;

 private:
  Tensor weight_, bias_;
  int64_t groups_ = 1;
  double eps_ = 1e-5;
};

}  // namespace tally

#endif  // TALLY_NN_CONV_LAYERS_H_
