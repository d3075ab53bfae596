#include "tally/nn/attention_layer.h"

#include <cmath>

#include "tally/nn/init.h"
#include "tally/ops/ops.h"

namespace tally {

AttentionLayer::AttentionLayer(Parameters& parameters, const std::string& name,
                               const TransformerConfig& config, int64_t layer)
    : config_(config),
      window_(config.Window(layer)),
      checkpointed_(config.checkpoints.OfAttention(layer)) {
  const CheckpointLayout& layout = LayoutOf(config);
  const int64_t queries = config.heads * config.HeadDim(),
                keys = config.KvHeads() * config.HeadDim();
  const LinearOptions in{.bias = config.qkv_bias, .in_out = layout.in_out, .std = kInitStd};
  packing_ = layout.packing;
  if (packing_ == QkvPacking::kSeparate) {
    for (const char* c = layout.qkv_order; *c != 0; ++c) {
      if (*c == 'q') q_ = {parameters, JoinPath(name, layout.q), config.width, queries, in};
      if (*c == 'k') k_ = {parameters, JoinPath(name, layout.k), config.width, keys, in};
      if (*c == 'v') v_ = {parameters, JoinPath(name, layout.v), config.width, keys, in};
    }
  } else {
    qkv_ = {parameters, JoinPath(name, layout.qkv), config.width, queries + 2 * keys, in};
  }
  out_ = {parameters,
          JoinPath(name, layout.out),
          queries,
          config.width,
          {.bias = config.out_bias, .in_out = layout.in_out, .std = ResidualStd(config)}};
  if (!config.qk_norm) return;
  const NormOptions norm{NormKind::kRmsNorm, config.eps, config.norm_offset};
  q_norm_ = {parameters, JoinPath(name, layout.q_norm), config.HeadDim(), norm};
  k_norm_ = {parameters, JoinPath(name, layout.k_norm), config.HeadDim(), norm};
}

AttentionLayer::Heads AttentionLayer::Project(const Tensor& x) const {
  const int64_t batch = x.dim(0), seq = x.dim(1), size = config_.HeadDim();
  const int64_t heads = config_.heads, kv_heads = config_.KvHeads();
  switch (packing_) {
    case QkvPacking::kSeparate: {
      Heads h;
      h.q = Reshape(q_(x), {batch, seq, heads, size});
      h.k = Reshape(k_(x), {batch, seq, kv_heads, size});
      h.v = Reshape(v_(x), {batch, seq, kv_heads, size});
      return h;
    }
    case QkvPacking::kFused: {
      const Tensor qkv = Reshape(qkv_(x), {batch, seq, heads + 2 * kv_heads, size});
      const Tensors parts = Split(qkv, {heads, kv_heads, kv_heads}, 2);
      return {parts[0], parts[1], parts[2]};
    }
    case QkvPacking::kPerHead: {
      const Tensor qkv = Reshape(qkv_(x), {batch, seq, heads, 3, size});
      const Tensors parts = Split(qkv, {1, 1, 1}, 3);
      return {Squeeze(parts[0], 3), Squeeze(parts[1], 3), Squeeze(parts[2], 3)};
    }
  }
  TALLY_CHECK(false) << "packing";
  return {};
}

Tensor AttentionLayer::Rotate(const Tensor& x, const Pass& pass) const {
  return Rope(x, {.dim = config_.RotaryDim(),
                  .theta = config_.rope_theta,
                  .interleaved = config_.rope_interleaved,
                  .documents = pass.documents,
                  .scaling = config_.rope_scaling,
                  .factor = config_.rope_factor,
                  .low_freq_factor = config_.rope_low_frequency,
                  .high_freq_factor = config_.rope_high_frequency,
                  .original_context = config_.rope_original_context});
}

Tensor AttentionLayer::Attend(const Heads& heads, const Pass& pass) const {
  AttentionOptions options{.causal = config_.causal,
                           .scale = config_.attention_scale,
                           .window = window_,
                           .documents = pass.documents,
                           .softcap = config_.attention_softcap};
  if (config_.attention == AttentionKind::kFused) {
    return FusedAttention(heads.q, heads.k, heads.v, options);
  }
  if (pass.random != nullptr) options.dropout = config_.dropout;
  options.random = pass.random;
  return ComposedAttention(heads.q, heads.k, heads.v, options);
}

bool AttentionLayer::HasPublishedForm(const Pass& pass) const {
  return packing_ == QkvPacking::kFused && config_.attention == AttentionKind::kComposed &&
         config_.causal && config_.heads == config_.KvHeads() && !config_.qk_norm &&
         config_.positions != PositionKind::kRotary && window_ == 0 &&
         config_.attention_scale == 0 && config_.attention_softcap == 0 && pass.documents.empty();
}

Tensor AttentionLayer::PublishedForm(const Tensor& qkv, Random* random) const {
  const int64_t batch = qkv.dim(0), seq = qkv.dim(1), size = config_.HeadDim();
  const Tensor split = Reshape(qkv, {batch, seq, 3, config_.heads, size});
  const Tensors parts = Split(split, {1, 1, 1}, 2);
  Tensor heads[3];  // q, k, v as [B,H,T,hd]: views of the one projection
  for (int i = 0; i < 3; ++i) heads[i] = Permute(Squeeze(parts[i], 2), {0, 2, 1, 3});
  const auto core = [&] {
    const Tensor scores = MatMul(heads[0], heads[1], {.b = true});
    Tensor weights = Softmax(
        scores, {.axis = -1, .scale = 1 / std::sqrt(static_cast<double>(size)), .causal = true});
    weights = DropoutIf(weights, config_.dropout, random);
    return Permute(MatMul(weights, heads[2]), {0, 2, 1, 3});
  };
  const Tensor mixed = checkpointed_ ? Checkpoint(core, config_.checkpoints.Options()) : core();
  const int64_t width = config_.heads * size;
  return DropoutIf(out_(Reshape(mixed, {batch, seq, width})), config_.dropout, random);
}

Tensor AttentionLayer::operator()(const Tensor& x, const Pass& pass) const {
  if (HasPublishedForm(pass)) return PublishedForm(qkv_(x), pass.random);
  Heads heads = Project(x);
  if (config_.qk_norm) {
    heads.q = q_norm_(heads.q);
    heads.k = k_norm_(heads.k);
  }
  if (config_.positions == PositionKind::kRotary) {
    heads.q = Rotate(heads.q, pass);
    heads.k = Rotate(heads.k, pass);
  }
  const auto core = [&] { return Attend(heads, pass); };
  const Tensor mixed = checkpointed_ ? Checkpoint(core, config_.checkpoints.Options()) : core();
  heads = {};
  const Tensor flat = Reshape(mixed, {x.dim(0), x.dim(1), config_.heads * config_.HeadDim()});
  return DropoutIf(out_(flat), config_.dropout, pass.random);
}

}  // namespace tally
