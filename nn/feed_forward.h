// The feed-forward layers of transformer blocks: plain, gated, and mixtures of experts.
#ifndef TALLY_NN_FEED_FORWARD_H_
#define TALLY_NN_FEED_FORWARD_H_

#include <string>

#include "tally/nn/checkpoint_layout.h"
#include "tally/nn/layers.h"

namespace tally {

// down(f(up(x))), or gated down(f(gate(x)) · up(x)), f the config's activation.
class FeedForward {
 public:
  FeedForward() = default;
  FeedForward(Parameters& parameters, const std::string& name, const TransformerConfig& config);
  // All that reads x[B,T,d]: a caller can let go of it before Contract. [B,T,inner].
  Tensor Expand(const Tensor& x) const;
  // The rest: -> [B,T,d].
  Tensor Contract(Tensor h) const;

 private:
  LinearLayer gate_, up_, gate_up_, down_;
  Activation activation_ = Activation::kGeluTanh;
  bool gated_ = false, packed_ = false;
};

// A mixture of experts (Shazeer et al. 2017, in Mixtral's form). Each token's k experts are those
// of the greatest router probabilities, which weigh their outputs:
//   p = softmax(x Rᵀ) in f32,  w, e = top_k(p),  y = sum over j of w_j expert_{e_j}(x)
// with w divided by its sum where the config renormalises. An expert is a gated layer.
//
// Expert weights are three parameters, EXPERTS.{gate,up}.weight [E,inner,d] and EXPERTS.down.weight
// [E,d,inner]; a checkpoint's EXPERTS.e.gate.weight is slice e, named in Parameters::slices().
//
// Every token takes k rows through the experts, whatever the routing: the matmul FLOPs of N tokens
// are 2·N·d·E for the router and 6·N·k·d·inner for the experts.
class ExpertMixture {
 public:
  ExpertMixture() = default;
  ExpertMixture(Parameters& parameters, const std::string& name, const TransformerConfig& config);
  Tensor operator()(const Tensor& x) const;  // [B,T,d] -> [B,T,d]

 private:
  LinearLayer router_;
  Tensor gate_, up_, down_;
  Activation activation_ = Activation::kSilu;
  int64_t experts_ = 0, per_token_ = 0;
  bool renormalise_ = false;
};

}  // namespace tally

#endif  // TALLY_NN_FEED_FORWARD_H_
