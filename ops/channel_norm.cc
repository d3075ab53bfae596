#include "tally/ops/channel_norm.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/binary.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rows.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"

namespace tally {

ChannelNorm ChannelNormOf(const TensorSpec& x, int64_t groups) {
  ChannelNorm a{
      .dtype = x.dtype, .batch = x.shape[0], .channels = x.shape[1], .space = 1, .groups = groups};
  for (int i = 2; i < x.rank(); ++i) a.space *= x.shape[i];
  if (x.numel() == 0) a.space = 0;  // whatever the other dims say
  return a;
}

absl::Status CheckChannelInput(const OpCall& call, int index, const char* names) {
  const TensorSpec& x = call.in[index];
  if (!IsComputingFloat(x.dtype)) {
    return InvalidCall(call, "computes on f64, f32, bf16 and f16; cast first", names);
  }
  if (x.rank() < 2) return InvalidCall(call, "wants x [N,C,...] with an axis of channels", names);
  return absl::OkStatus();
}

absl::Status CheckChannelParam(const OpCall& call, const TensorSpec& x, int index,
                               const char* names) {
  if (call.in[index] == TensorSpec{x.dtype, {x.shape[1]}}) return absl::OkStatus();
  return InvalidCall(call,
                     absl::StrCat("weight and bias are ",
                                  TensorSpec{x.dtype, {x.shape[1]}}.ToString(), ", one a channel"),
                     names);
}

absl::Status CheckEps(const OpCall& call, double eps, const char* names) {
  if (eps >= 0 && !std::isinf(eps)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("eps is ", eps, "; it is 0 or more"), names);
}

namespace {
Count Elements(const ChannelNorm& a) { return Count(a.batch) * a.channels * a.space; }
Count Sets(const ChannelNorm& a) { return a.count() == 0 ? 0 : a.sets(); }
Count Channels(const ChannelNorm& a) { return a.batch * a.space == 0 ? 0 : a.channels; }
}  // namespace

Cost PriceChannelNorm(const ChannelNorm& a) {
  return {.other = 7 * Elements(a) + Sets(a), .transcendental = Sets(a)};
}
Cost PriceChannelNormGrad(const ChannelNorm& a) { return {.other = 10 * Elements(a)}; }
Cost PriceChannelNormParamGrad(const ChannelNorm& a) {
  return {.other = 5 * Elements(a) - 2 * Channels(a)};
}

Tensor AlongChannels(const Tensor& param, int x_rank) {
  Tensor p = param;
  for (int i = 2; i < x_rank; ++i) p = Unsqueeze(p, -1);
  return p;
}

namespace {

// x seen so that the statistics run over `axes`: as it is, or [N, groups, n].
struct SetView {
  Tensor x;
  Axes axes;
};
SetView AsSets(const Tensor& x, int64_t groups) {
  if (groups != 0) return {Reshape(x, {x.dim(0), groups, x.numel() / (x.dim(0) * groups)}), {2}};
  Axes axes = {0};
  for (int i = 2; i < x.rank(); ++i) axes.axis[axes.count++] = static_cast<int8_t>(i);
  return {x, axes};
}

// h and rstd of x as sets.
struct Composed {
  Tensor h, rstd;
};
Composed Compose(const SetView& s, double eps) {
  const Tensor centered = Sub(s.x, Mean(s.x, s.axes, true));
  const Tensor rstd = Rsqrt(Add(Mean(Square(centered), s.axes, true), eps));
  return {Mul(centered, rstd), rstd};
}

}  // namespace

// dx = rstd (g - mean(g) - h mean(g h)).
Tensor ComposedNormGrad(const Tensor& x, const Tensor& g, int64_t groups, double eps) {
  if (x.numel() == 0) return Mul(g, x);
  const SetView sets = AsSets(x, groups), gs = AsSets(g, groups);
  const auto [h, rstd] = Compose(sets, eps);
  const Tensor centered = Sub(gs.x, Mean(gs.x, gs.axes, true));
  const Tensor dx = Mul(Sub(centered, Mul(h, Mean(Mul(gs.x, h), gs.axes, true))), rstd);
  return groups == 0 ? dx : Reshape(dx, x.shape());
}

Tensors ComposedNormParamGrad(const Tensor& x, const Tensor& dy, int64_t groups, double eps) {
  Axes axes = {0};
  for (int i = 2; i < x.rank(); ++i) axes.axis[axes.count++] = static_cast<int8_t>(i);
  if (x.numel() == 0) return {Sum(dy, axes), Sum(dy, axes)};
  Tensor h = Compose(AsSets(x, groups), eps).h;
  if (groups != 0) h = Reshape(h, x.shape());
  return {Sum(Mul(dy, h), axes), Sum(dy, axes)};
}

}  // namespace tally
