// Three small models: an MLP, the deep linear net of the resource-accounting
// lecture ("cruncher"), and its two-layer example.
#ifndef TALLY_NN_MLP_H_
#define TALLY_NN_MLP_H_

#include <string>
#include <vector>

#include "tally/nn/activation.h"
#include "tally/nn/layer_checkpoints.h"
#include "tally/nn/layers.h"

namespace tally {

struct MlpConfig {
  std::vector<int64_t> sizes{784, 512, 512, 10};  // input, hidden..., output
  Activation activation = Activation::kRelu;
  bool bias = true;
  LayerCheckpoints checkpoints;  // of the linear layers, each with the activation behind it
};

// Linear layers "layers.0", "layers.1", ... with the activation between them.
class Mlp {
 public:
  // Throws Error on fewer than two sizes or a size below 1.
  Mlp(Parameters& parameters, const MlpConfig& config);
  Tensor operator()(const Tensor& x) const;  // x[B, in] -> logits [B, out]
  // Mean cross entropy against class indices [B].
  Tensor Loss(const Tensor& x, const Tensor& targets) const;

 private:
  MlpConfig config_;
  std::vector<LinearLayer> layers_;
};

struct CruncherConfig {
  int64_t width = 64, layers = 2;
  bool scaled = true;  // weights are randn / sqrt(d_in); otherwise plain randn
  LayerCheckpoints checkpoints;
};

// L layers x @ W with W [D,D], then a head [D,1]: "layers.0.weight" ...,
// "final.weight". No biases.
class Cruncher {
 public:
  Cruncher(Parameters& parameters, const CruncherConfig& config);
  Tensor operator()(const Tensor& x) const;  // x[B, D] -> [B]
  // Mean squared error against target [B].
  Tensor Loss(const Tensor& x, const Tensor& target) const;

 private:
  std::vector<Tensor> weights_;
  Tensor head_;
  LayerCheckpoints checkpoints_;
};

struct TwoLayerConfig {
  int64_t in = 256, out = 64;
  LayerCheckpoints checkpoints;
};

// h1 = x @ w1 with w1 [D,D], h2 = h1 @ w2 with w2 [D,K], loss = mean(h2²).
class TwoLayerLinear {
 public:
  TwoLayerLinear(Parameters& parameters, const TwoLayerConfig& config);
  Tensor operator()(const Tensor& x) const;  // x[B, D] -> h2 [B, K]
  Tensor Loss(const Tensor& x) const;

 private:
  Tensor w1_, w2_;
  LayerCheckpoints checkpoints_;
};

}  // namespace tally

#endif  // TALLY_NN_MLP_H_
