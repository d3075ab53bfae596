#include "tally/nn/layers.h"

#include <cmath>

#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {

LinearLayer::LinearLayer(Parameters& parameters, const std::string& name, int64_t in, int64_t out,
                         const LinearOptions& options)
    : in_out_(options.in_out) {
  const Shape shape = options.in_out ? Shape{in, out} : Shape{out, in};
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  const std::string weight = name + ".weight", bias = name + ".bias";
  if (options.std > 0) {
    weight_ = parameters.Normal(weight, shape, options.std);
    if (options.bias) bias_ = parameters.Full(bias, {out}, 0);
  } else {
    weight_ = parameters.Uniform(weight, shape, bound);
    if (options.bias) bias_ = parameters.Uniform(bias, {out}, bound);
  }
}

Tensor LinearLayer::operator()(const Tensor& x) const {
  return Linear(x, weight_, bias_, /*transpose_weight=*/!in_out_);
}

EmbeddingLayer::EmbeddingLayer(Parameters& parameters, const std::string& name, int64_t rows,
                               int64_t width, double std)
    : weight_(parameters.Normal(name + ".weight", {rows, width}, std)) {}

Tensor EmbeddingLayer::operator()(const Tensor& ids) const { return GatherRows(weight_, ids); }

LayerNormLayer::LayerNormLayer(Parameters& parameters, const std::string& name, int64_t width,
                               double eps)
    : weight_(parameters.Full(name + ".weight", {width}, 1)),
      bias_(parameters.Full(name + ".bias", {width}, 0)),
      eps_(eps) {}

Tensor LayerNormLayer::operator()(const Tensor& x) const {
  return LayerNorm(x, weight_, bias_, eps_);
}

Tensor DropoutIf(const Tensor& x, double p, Random* random) {
  return p > 0 && random != nullptr ? Dropout(x, p, *random) : x;
}

}  // namespace tally
