// Layers: plain structs of parameters with a call operator. `name` is the
// prefix of the parameters' names and, where a layer opens one, the name of its
// scope.
#ifndef TALLY_NN_LAYERS_H_
#define TALLY_NN_LAYERS_H_

#include <string>

#include "tally/nn/parameters.h"
#include "tally/nn/transformer_config.h"

namespace tally {

// y = x Wᵀ + b with W [out,in], as PyTorch's Linear; or y = x W + b with W
// [in,out] (GPT-2's Conv1D).
struct LinearOptions {
  bool bias = true;
  bool in_out = false;  // W is [in,out]
  double std = 0;       // of the normal initialisation; 0: uniform in ±1/sqrt(in), as PyTorch
};

// With an adapter (see lora.h) where Parameters gives it one.
class LinearLayer {
 public:
  LinearLayer() = default;
  LinearLayer(Parameters& parameters, const std::string& name, int64_t in, int64_t out,
              const LinearOptions& options = {});
  // x[..., in] -> [..., out]
  Tensor operator()(const Tensor& x) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  Tensor weight_, bias_;
  bool in_out_ = false;
  Parameters::Adapter adapter_;
};

class EmbeddingLayer {
 public:
  EmbeddingLayer() = default;
  EmbeddingLayer(Parameters& parameters, const std::string& name, int64_t rows, int64_t width,
                 double std = 1);
  // ids[...] (i64 or i32) -> [..., width]
  Tensor operator()(const Tensor& ids) const;
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

struct NormOptions {
  NormKind kind = NormKind::kLayerNorm;
  double eps = 1e-5;
  double offset = 0;  // RMS norms: y = h (offset + w), and w starts at 1 - offset
};

// Over the last axis: a layer norm with weight and bias, or an RMS norm with a weight.
class NormLayer {
 public:
  NormLayer() = default;
  NormLayer(Parameters& parameters, const std::string& name, int64_t width,
            const NormOptions& options = {});
  Tensor operator()(const Tensor& x) const;

 private:
  Tensor weight_, bias_;
  NormOptions options_;
};

// Dropout with its own place in the random sequence. Does nothing at p = 0.
Tensor DropoutIf(const Tensor& x, double p, Random* random);

}  // namespace tally

#endif  // TALLY_NN_LAYERS_H_
