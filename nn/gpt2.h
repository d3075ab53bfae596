// The GPT-2 family (Radford et al. 2019): learned positions, pre-LayerNorm
// blocks, one fused qkv projection, GELU in the tanh form, a head tied to the
// token embedding.
//
// Parameter names, shapes and order are the original checkpoint's: wte.weight
// [V,d], wpe.weight [T,d], then per block h.N: ln_1, attn.c_attn [d,3d],
// attn.c_proj [d,d], ln_2, mlp.c_fc [d,4d], mlp.c_proj [4d,d], each with weight
// and bias, and ln_f. Matrices are [in,out]. In all Vd + Td + L(12d² + 13d) +
// 2d parameters.
#ifndef TALLY_NN_GPT2_H_
#define TALLY_NN_GPT2_H_

#include <string>
#include <vector>

#include "tally/nn/layers.h"

namespace tally {

struct Gpt2Config {
  int64_t vocab = 50257, context = 1024, width = 768, layers = 12, heads = 12;
  int64_t inner = 0;   // 0: 4·width
  double dropout = 0;  // after the embedding, on attention weights and on both
                       // residual branches
  double eps = 1e-5;

  // Throws Error naming the field when a size is below 1 or heads do not divide
  // width.
  void Check() const;
  int64_t ff() const { return inner > 0 ? inner : 4 * width; }
  int64_t NumParameters() const;  // the closed form above
};

class CausalSelfAttention {
 public:
  CausalSelfAttention(Parameters& parameters, const std::string& name, const Gpt2Config& config);
  // x[B,T,d] -> [B,T,d]. `random` is for dropout and may be null.
  Tensor operator()(const Tensor& x, Random* random) const;

 private:
  LinearLayer c_attn_, c_proj_;
  int64_t heads_;
  double dropout_;
};

class Gpt2Block {
 public:
  Gpt2Block(Parameters& parameters, const std::string& name, const Gpt2Config& config);
  Tensor operator()(const Tensor& x, Random* random) const;

 private:
  LayerNormLayer ln_1_;
  CausalSelfAttention attn_;
  LayerNormLayer ln_2_;
  LinearLayer c_fc_, c_proj_;
  double dropout_;
};

class Gpt2 {
 public:
  Gpt2(Parameters& parameters, const Gpt2Config& config);
  // ids[B,T] of i64 or i32, T at most the context -> logits [B,T,V]. Throws
  // Error on a longer T. With `random`, dropout is on (training); without it,
  // off.
  Tensor operator()(const Tensor& ids, Random* random = nullptr) const;
  // Mean cross entropy of logits against targets [B,T].
  Tensor Loss(const Tensor& ids, const Tensor& targets, Random* random = nullptr) const;
  const Gpt2Config& config() const { return config_; }

 private:
  Gpt2Config config_;
  EmbeddingLayer wte_, wpe_;
  std::vector<Gpt2Block> blocks_;
  LayerNormLayer ln_f_;
};

}  // namespace tally

#endif  // TALLY_NN_GPT2_H_
