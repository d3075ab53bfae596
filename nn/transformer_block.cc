// One block: where its norms, attention and feed-forward layer stand to each other.
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tally/nn/transformer.h"
#include "tally/ops/ops.h"
#include "tally/ops/recorder.h"

namespace tally {

TransformerBlock::TransformerBlock(Parameters& parameters, const std::string& name,
                                   const TransformerConfig& config, int64_t layer)
    : placement_(config.placement),
      layout_(&LayoutOf(config)),
      has_experts_(config.experts > 0),
      dropout_(config.dropout) {
  const NormOptions norm{config.norm, config.eps, config.norm_offset};
  for (const char* part = layout_->order; *part != 0; ++part) {
    if (*part == 'a') {
      attention_ = {parameters, JoinPath(name, layout_->attention), config, layer};
    } else if (*part == 'm' && has_experts_) {
      experts_ = {parameters, JoinPath(name, layout_->mlp), config};
    } else if (*part == 'm') {
      mlp_ = {parameters, JoinPath(name, layout_->mlp), config};
    } else {
      const int i = *part - '1';
      norms_[i] = {parameters, JoinPath(name, layout_->norms[i]), config.width, norm};
    }
  }
}

Tensor TransformerBlock::Norm(int i, const Tensor& x) const {
  Scope scope(layout_->norms[i]);
  return norms_[i](x);
}

Tensor TransformerBlock::Attend(const Tensor& x, const Pass& pass) const {
  Scope scope(layout_->attention);
  return attention_(x, pass);
}

Tensor TransformerBlock::Feed(const Tensor& x, const Pass& pass) const {
  Scope scope(*layout_->mlp == 0 ? "mlp" : layout_->mlp);
  const Tensor y = has_experts_ ? experts_(x) : mlp_.Contract(mlp_.Expand(x));
  return DropoutIf(y, dropout_, pass.random);
}

// Lets go of each value as soon as nothing reads it any more.
Tensor TransformerBlock::Pre(const Tensor& x, const Pass& pass) const {
  Tensor normed = Norm(0, x);
  Tensor branch = Attend(normed, pass);
  normed = Tensor();
  const Tensor h = Add(x, branch);
  normed = Norm(1, h);
  {
    Scope scope(*layout_->mlp == 0 ? "mlp" : layout_->mlp);
    if (has_experts_) {
      branch = experts_(normed);
      normed = Tensor();
    } else {
      branch = mlp_.Expand(normed);
      normed = Tensor();
      branch = mlp_.Contract(std::move(branch));
    }
    branch = DropoutIf(branch, dropout_, pass.random);
  }
  return Add(h, branch);
}

Tensor TransformerBlock::Post(const Tensor& x, const Pass& pass) const {
  Tensor h = Add(x, Attend(x, pass));
  h = Norm(0, h);
  h = Add(h, Feed(h, pass));
  return Norm(1, h);
}

Tensor TransformerBlock::Parallel(const Tensor& x, const Pass& pass) const {
  Tensor normed = Norm(0, x);
  Tensor branch = Attend(normed, pass);
  if (placement_ == NormPlacement::kParallel) normed = Norm(1, x);
  const Tensor h = Add(x, branch);
  branch = Feed(normed, pass);
  return Add(h, branch);
}

Tensor TransformerBlock::Sandwich(const Tensor& x, const Pass& pass) const {
  Tensor branch = Norm(1, Attend(Norm(0, x), pass));
  const Tensor h = Add(x, branch);
  branch = Norm(3, Feed(Norm(2, h), pass));
  return Add(h, branch);
}

Tensor TransformerBlock::operator()(const Tensor& x, const Pass& pass) const {
  switch (placement_) {
    case NormPlacement::kPre:
      return Pre(x, pass);
    case NormPlacement::kPost:
      return Post(x, pass);
    case NormPlacement::kParallel:
    case NormPlacement::kParallelShared:
      return Parallel(x, pass);
    case NormPlacement::kSandwich:
      return Sandwich(x, pass);
  }
  TALLY_CHECK(false) << "placement";
  return x;
}

}  // namespace tally
