#include "tally/nn/feed_forward.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/nn/init.h"
#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {

FeedForward::FeedForward(Parameters& parameters, const std::string& name,
                         const TransformerConfig& config)
    : activation_(config.activation), gated_(config.gated) {
  const CheckpointLayout& layout = LayoutOf(config);
  const int64_t d = config.width, inner = config.Inner();
  const LinearOptions in{.bias = config.mlp_bias, .in_out = layout.in_out, .std = kInitStd};
  packed_ = gated_ && layout.gate_up != nullptr;
  if (packed_) {
    gate_up_ = {parameters, JoinPath(name, layout.gate_up), d, 2 * inner, in};
  } else {
    if (gated_) gate_ = {parameters, JoinPath(name, layout.gate), d, inner, in};
    up_ = {parameters, JoinPath(name, layout.up), d, inner, in};
  }
  down_ = {parameters,
           JoinPath(name, layout.down),
           inner,
           d,
           {.bias = config.mlp_bias, .in_out = layout.in_out, .std = ResidualStd(config)}};
}

Tensor FeedForward::Expand(const Tensor& x) const {
  if (!gated_) return up_(x);
  if (packed_) {
    const Tensors halves = SplitEvenly(gate_up_(x), 2, -1);
    return ActivateGate(activation_, halves[0], halves[1]);
  }
  const Tensor gate = gate_(x);
  return ActivateGate(activation_, gate, up_(x));
}

Tensor FeedForward::Contract(Tensor h) const {
  if (!gated_) h = Activate(activation_, h);
  return down_(h);
}

ExpertMixture::ExpertMixture(Parameters& parameters, const std::string& name,
                             const TransformerConfig& config)
    : activation_(config.activation),
      experts_(config.experts),
      per_token_(config.experts_per_token),
      renormalise_(config.renormalise_experts) {
  const CheckpointLayout& layout = LayoutOf(config);
  const int64_t d = config.width, inner = config.ExpertInner();
  router_ = {
      parameters, JoinPath(name, layout.router), d, experts_, {.bias = false, .std = kInitStd}};
  const std::string prefix = JoinPath(name, layout.experts);
  const auto make = [&](const char* what, const Shape& shape, double std) {
    const std::string suffix = absl::StrCat(".", what, ".weight");
    const Tensor stacked = parameters.Normal(prefix + suffix, shape, std);
    parameters.NameSlices(prefix + suffix, prefix, suffix);
    return stacked;
  };
  gate_ = make(layout.gate, {experts_, inner, d}, kInitStd);
  up_ = make(layout.up, {experts_, inner, d}, kInitStd);
  down_ = make(layout.down, {experts_, d, inner}, ResidualStd(config));
}

Tensor ExpertMixture::operator()(const Tensor& x) const {
  const int64_t width = x.dim(-1);
  const Tensor rows = Reshape(x, {-1, width});
  Tensor weights;
  Routing routing;
  {
    Scope scope("router");
    const DType compute = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
    const TopKResult top = TopK(Softmax(Cast(router_(rows), compute)), per_token_);
    weights = top.values;
    if (renormalise_) weights = Div(weights, Sum(weights, {-1}, /*keepdim=*/true));
    weights = Cast(weights, x.dtype());
    routing = Route(top.indices, experts_);
  }
  Scope scope("experts");
  Tensor h = MoeDispatch(rows, routing);
  {
    const Tensor gate = GroupedMatMul(h, gate_, routing.offsets, /*transpose_w=*/true);
    const Tensor up = GroupedMatMul(h, up_, routing.offsets, /*transpose_w=*/true);
    h = ActivateGate(activation_, gate, up);
  }
  h = GroupedMatMul(h, down_, routing.offsets, /*transpose_w=*/true);
  return Reshape(MoeCombine(h, weights, routing), x.shape());
}

}  // namespace tally
