#include "tally/nn/transformer.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/nn/init.h"
#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {
namespace {

const TransformerConfig& Checked(const TransformerConfig& config) {
  config.Check();
  return config;
}

// Rows of the table of positions for every place of a sequence: they begin again at `offset` with
// each document.
Tensor Positions(int64_t count, Lengths documents, int64_t offset, Device device) {
  Tensor positions;
  if (device.is_meta()) {
    positions = Tensor::Empty({DType::kI64, {count}}, device);
  } else {
    std::vector<int64_t> values;
    values.reserve(count);
    const auto add = [&](int64_t length) {
      for (int64_t i = 0; i < length; ++i) values.push_back(offset + i);
    };
    if (documents.empty()) add(count);
    for (int64_t length : documents.list()) add(length);
    positions = Tensor::FromVector(values, {count}, device);
  }
  positions.storage().set_name("positions");
  return positions;
}

Tensor NoTokenTypes(const Shape& shape, Device device) {
  const Tensor types = Tensor::Full({DType::kI64, shape}, 0, device);
  types.storage().set_name("token_types");
  return types;
}

Tensor Softcap(const Tensor& x, double cap) {
  return cap > 0 ? Mul(Tanh(Mul(x, 1 / cap)), cap) : x;
}

}  // namespace

Transformer::Transformer(Parameters& parameters, const TransformerConfig& config)
    : config_(Checked(config)), layout_(LayoutOf(config)) {
  const int64_t d = config.width;
  const NormOptions norm{config.norm, config.eps, config.norm_offset};
  const LinearOptions plain{.bias = false, .std = kInitStd};
  if (config.takes_images()) {
    const int64_t rows = config.Patches() + (config.class_token ? 1 : 0);
    if (config.class_token) {
      class_token_ = parameters.Normal(layout_.class_token, {1, 1, d}, kInitStd);
    }
    if (config.positions == PositionKind::kLearned) {
      patch_positions_ = parameters.Normal(layout_.positions, {1, rows, d}, kInitStd);
    }
    const std::string patches = layout_.embed;
    patch_weight_ = parameters.Normal(patches + ".weight",
                                      {d, config.channels, config.patch, config.patch}, kInitStd);
    patch_bias_ = parameters.Full(patches + ".bias", {d}, 0);
  } else {
    const int64_t width = config.embedding_width > 0 ? config.embedding_width : d;
    embed_ = {parameters, layout_.embed, config.vocab, width, kInitStd};
    if (config.positions == PositionKind::kLearned) {
      positions_ = {parameters, layout_.positions, config.context + config.position_offset, d,
                    kInitStd};
    }
    if (config.token_types > 0) {
      token_types_ = {parameters, layout_.token_types, config.token_types, d, kInitStd};
    }
    if (config.embedding_width > 0) {
      project_out_ = {parameters, layout_.project_out, d, width, plain};
      project_in_ = {parameters, layout_.project_in, width, d, plain};
    }
    if (config.embedding_norm) embedding_norm_ = {parameters, layout_.embedding_norm, d, norm};
  }
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks_.emplace_back(parameters, absl::StrCat(layout_.blocks, ".", i), config, i);
  }
  if (config.final_norm) final_norm_ = {parameters, layout_.final_norm, d, norm};
  MakeHead(parameters);
}

void Transformer::MakeHead(Parameters& parameters) {
  const int64_t d = config_.width;
  const std::string name = layout_.head;
  switch (config_.head) {
    case Head::kPooled:
      head_ = {parameters, layout_.pooler, d, d, {.std = kInitStd}};
      return;
    case Head::kClasses:
      head_ = {parameters, name, d, config_.classes, {.std = kInitStd}};
      return;
    case Head::kMaskedLanguageModel:
      head_bias_ = parameters.Full(name + ".bias", {config_.vocab}, 0);
      transform_ = {parameters, name + ".transform.dense", d, d, {.std = kInitStd}};
      transform_norm_ = {parameters,
                         name + ".transform.LayerNorm",
                         d,
                         {config_.norm, config_.eps, config_.norm_offset}};
      if (!config_.tied) {
        head_ = {parameters, name + ".decoder", d, config_.vocab, {.bias = false, .std = kInitStd}};
      }
      return;
    case Head::kLanguageModel:
      if (!config_.tied) {
        const int64_t in = config_.embedding_width > 0 ? config_.embedding_width : d;
        head_ = {parameters, name, in, config_.vocab, {.bias = config_.head_bias, .std = kInitStd}};
      } else if (config_.head_bias) {
        head_bias_ = parameters.Full(name + ".bias", {config_.vocab}, 0);
      }
      return;
  }
}

void Transformer::CheckInput(const Tensor& input, const Pass& pass) const {
  const char* const family = Name(config_.family);
  if (!input.defined()) {
    ThrowInvalid(absl::StrCat(family, ": the ", config_.takes_images() ? "images" : "ids",
                              " are undefined"));
  }
  if (config_.takes_images()) {
    if (input.rank() != 4 || input.dim(1) != config_.channels || input.dim(2) != config_.image ||
        input.dim(3) != config_.image) {
      ThrowInvalid(absl::StrCat(family, ": the images are ", input.spec().ToString(),
                                "; wanted [batch,", config_.channels, ",", config_.image, ",",
                                config_.image, "]"));
    }
    if (!pass.documents.empty()) ThrowInvalid(absl::StrCat(family, ": images are no documents"));
    return;
  }
  if (input.rank() != 2 || input.dim(1) > config_.context) {
    ThrowInvalid(absl::StrCat(family, ": ids are ", input.spec().ToString(),
                              "; wanted [batch, sequence] with a sequence of at most ",
                              config_.context));
  }
  if (pass.documents.empty()) return;
  // Counted down, so that no sum of lengths can overflow.
  int64_t left = input.dim(1);
  for (int64_t length : pass.documents.list()) {
    if (length < 0 || length > left) left = -1;
    if (left < 0) break;
    left -= length;
  }
  if (left != 0) {
    ThrowInvalid(absl::StrCat(family,
                              ": the lengths of the documents do not add up to the sequence"
                              " of ",
                              input.dim(1)));
  }
}

Tensor Transformer::EmbedTokens(const Tensor& ids, const Pass& pass) const {
  Tensor positions, position_rows;
  if (config_.positions == PositionKind::kLearned) {
    positions = Positions(ids.dim(1), pass.documents, config_.position_offset, ids.device());
    position_rows = positions_(positions);
  }
  Tensor h = embed_(ids);
  if (config_.embedding_width > 0) h = project_in_(h);
  if (config_.scaled_embedding) h = Mul(h, std::sqrt(static_cast<double>(config_.width)));
  if (position_rows.defined()) h = Add(h, position_rows);
  position_rows = Tensor();
  if (config_.token_types > 0) {
    const Tensor types =
        pass.token_types.defined() ? pass.token_types : NoTokenTypes(ids.shape(), ids.device());
    h = Add(h, token_types_(types));
  }
  if (config_.embedding_norm) h = embedding_norm_(h);
  return h;
}

Tensor Transformer::EmbedPatches(const Tensor& images) const {
  const int64_t batch = images.dim(0), d = config_.width;
  const int edge = static_cast<int>(config_.patch);
  Tensor h = Conv2d(images, patch_weight_, patch_bias_, {.stride = {edge, edge}});
  h = Transpose(Reshape(h, {batch, d, config_.Patches()}), 1, 2);
  if (config_.class_token) h = Cat({Expand(class_token_, {batch, 1, d}), h}, 1);
  return patch_positions_.defined() ? Add(h, patch_positions_) : h;
}

Tensor Transformer::Encode(const Tensor& input, const Pass& pass) const {
  CheckInput(input, pass);
  Tensor h;
  {
    Scope scope("embed");
    h = config_.takes_images() ? EmbedPatches(input) : EmbedTokens(input, pass);
    h = DropoutIf(h, config_.dropout, pass.random);
  }
  // One row of the loss stands for a whole sequence or image.
  if (config_.head == Head::kPooled || config_.head == Head::kClasses) MarkTokens(h);
  h = RunLayers(config_.checkpoints, config_.layers, std::move(h), [&](int64_t i, Tensor x) {
    Scope scope(absl::StrCat(layout_.blocks, ".", i));
    return blocks_[i](x, pass);
  });
  if (config_.final_norm) {
    Scope scope(layout_.final_norm);
    h = final_norm_(h);
  }
  return h;
}

Tensor Transformer::Logits(Tensor h) const {
  if (config_.head == Head::kMaskedLanguageModel) {
    h = transform_norm_(Activate(config_.activation, transform_(h)));
    return Linear(h, config_.tied ? embed_.weight() : head_.weight(), head_bias_);
  }
  if (config_.embedding_width > 0) h = project_out_(h);
  h = config_.tied ? Linear(h, embed_.weight(), head_bias_) : head_(h);
  return Softcap(h, config_.final_softcap);
}

Tensor Transformer::operator()(const Tensor& input, const Pass& pass) const {
  Tensor h = Encode(input, pass);
  Scope scope(config_.head == Head::kPooled ? layout_.pooler : layout_.head);
  switch (config_.head) {
    case Head::kPooled:
      return Tanh(head_(Select(h, 1, 0)));
    case Head::kClasses:
      return head_(config_.class_token ? Select(h, 1, 0) : Mean(h, {1}));
    case Head::kLanguageModel:
    case Head::kMaskedLanguageModel:
      return Logits(std::move(h));
  }
  TALLY_CHECK(false) << "head";
  return h;
}

Tensor Transformer::Loss(const Tensor& input, const Tensor& targets, const Pass& pass) const {
  const Tensor y = (*this)(input, pass);
  Scope scope("loss");
  if (config_.head != Head::kPooled) return CrossEntropy(y, targets);
  // [B,1] would broadcast without an error.
  if (targets.defined() && targets.shape() != y.shape()) {
    ThrowInvalid(absl::StrCat(Name(config_.family), ": the target is ", targets.spec().ToString(),
                              ", the pooled output ", y.spec().ToString()));
  }
  return Mean(Square(Sub(y, targets)));
}

}  // namespace tally
