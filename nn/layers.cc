#include "tally/nn/layers.h"

#include <cmath>

#include "tally/ops/ops.h"

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
  adapter_ = parameters.AdapterFor(name, in, out);
}

Tensor LinearLayer::operator()(const Tensor& x) const {
  const Tensor y = Linear(x, weight_, bias_, /*transpose_weight=*/!in_out_);
  if (!adapter_.a.defined()) return y;
  // The scale goes where the rows are shortest.
  Tensor low = Linear(x, adapter_.a);
  if (adapter_.scale != 1) low = Mul(low, adapter_.scale);
  return Add(y, Linear(low, adapter_.b));
}

EmbeddingLayer::EmbeddingLayer(Parameters& parameters, const std::string& name, int64_t rows,
                               int64_t width, double std)
    : weight_(parameters.Normal(name + ".weight", {rows, width}, std)) {}

Tensor EmbeddingLayer::operator()(const Tensor& ids) const { return GatherRows(weight_, ids); }

NormLayer::NormLayer(Parameters& parameters, const std::string& name, int64_t width,
                     const NormOptions& options)
    : options_(options) {
  const bool rms = options.kind == NormKind::kRmsNorm;
  weight_ = parameters.Full(name + ".weight", {width}, rms ? 1 - options.offset : 1);
  if (!rms) bias_ = parameters.Full(name + ".bias", {width}, 0);
}

Tensor NormLayer::operator()(const Tensor& x) const {
  if (options_.kind == NormKind::kRmsNorm) {
    return RmsNorm(x, weight_, {.eps = options_.eps, .offset = options_.offset});
  }
  return LayerNorm(x, weight_, bias_, options_.eps);
}

Tensor DropoutIf(const Tensor& x, double p, Random* random) {
  return p > 0 && random != nullptr ? Dropout(x, p, *random) : x;
}

}  // namespace tally
