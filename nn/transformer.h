// Transformer: every family of transformer_config.h, made of its parts.
//
// Parameters have the names and shapes of the family's published checkpoints and come in their
// order: embeddings, blocks, final norm, head. Where a checkpoint ties the head to the token
// embedding there is one parameter. Experts are stacked, with the published names as slices.
//
// Scopes are "embed", the path of each block ("h.3", "model.layers.3") with that of each of its
// modules inside, the paths of the final norm and the head, and "loss".
#ifndef TALLY_NN_TRANSFORMER_H_
#define TALLY_NN_TRANSFORMER_H_

#include <string>
#include <vector>

#include "tally/nn/attention_layer.h"
#include "tally/nn/feed_forward.h"
#include "tally/nn/layers.h"
#include "tally/nn/transformer_config.h"

namespace tally {

class TransformerBlock {
 public:
  TransformerBlock(Parameters& parameters, const std::string& name, const TransformerConfig& config,
                   int64_t layer);
  // x[B,T,d] -> [B,T,d].
  Tensor operator()(const Tensor& x, const Pass& pass) const;

 private:
  Tensor Norm(int i, const Tensor& x) const;
  Tensor Attend(const Tensor& x, const Pass& pass) const;
  Tensor Feed(const Tensor& x, const Pass& pass) const;
  Tensor Pre(const Tensor& x, const Pass& pass) const;
  Tensor Post(const Tensor& x, const Pass& pass) const;
  Tensor Parallel(const Tensor& x, const Pass& pass) const;
  Tensor Sandwich(const Tensor& x, const Pass& pass) const;

  NormLayer norms_[4];
  AttentionLayer attention_;
  FeedForward mlp_;
  ExpertMixture experts_;
  NormPlacement placement_;
  const CheckpointLayout* layout_;
  bool has_experts_;
  double dropout_;
};

class Transformer {
 public:
  // Throws Error for a config that does not pass its Check.
  Transformer(Parameters& parameters, const TransformerConfig& config);

  // Tokens: ids[B,T] of i64 or i32, T at most the context; images: x[B,channels,image,image]. What
  // comes out is the head's (see Head). Throws Error on other specs and on documents that do not
  // add up to T.
  Tensor operator()(const Tensor& input, const Pass& pass = {}) const;
  // Before the head: [B,T,d], after the final norm.
  Tensor Encode(const Tensor& input, const Pass& pass = {}) const;
  // The loss of the head's output: targets[B,T] for language models, [B,d] for pooled, [B] for
  // classes.
  Tensor Loss(const Tensor& input, const Tensor& targets, const Pass& pass = {}) const;
  const TransformerConfig& config() const { return config_; }

 private:
  void MakeHead(Parameters& parameters);
  void CheckInput(const Tensor& input, const Pass& pass) const;
  Tensor EmbedTokens(const Tensor& ids, const Pass& pass) const;
  Tensor EmbedPatches(const Tensor& images) const;
  Tensor Logits(Tensor h) const;

  TransformerConfig config_;
  const CheckpointLayout& layout_;
  EmbeddingLayer embed_, positions_, token_types_;
  LinearLayer project_in_, project_out_;
  NormLayer embedding_norm_;
  Tensor class_token_, patch_positions_, patch_weight_, patch_bias_;
  std::vector<TransformerBlock> blocks_;
  NormLayer final_norm_;
  LinearLayer head_, transform_;  // head_ also of classes and of the pooler
  NormLayer transform_norm_;
  Tensor head_bias_;  // of a tied head
};

}  // namespace tally

#endif  // TALLY_NN_TRANSFORMER_H_
