#include "tally/ops/group_norm.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/channel_norm.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/defined.h"
#include "tally/ops/rows.h"

namespace tally {

absl::Span<const AttrField> GroupNormAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(GroupNormAttrs, groups),
                                          TALLY_ATTR(GroupNormAttrs, eps)};
  return kFields;
}

namespace {

constexpr char kNames[] = "x weight bias";
constexpr char kGradNames[] = "dy x mean rstd weight";

absl::Status CheckGroups(const OpCall& call, const TensorSpec& x, int64_t groups,
                         const char* names) {
  if (groups >= 1 && x.shape[1] % groups == 0) return absl::OkStatus();
  return InvalidCall(
      call, absl::StrCat("groups=", groups, " do not divide the ", x.shape[1], " channels"), names);
}

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckChannelInput(call, 0, kNames));
  const TensorSpec& x = call.in[0];
  const auto& a = call.As<GroupNormAttrs>();
  TALLY_RETURN_IF_ERROR(CheckGroups(call, x, a.groups, kNames));
  TALLY_RETURN_IF_ERROR(CheckChannelParam(call, x, 1, kNames));
  TALLY_RETURN_IF_ERROR(CheckChannelParam(call, x, 2, kNames));
  TALLY_RETURN_IF_ERROR(CheckEps(call, a.eps, kNames));
  TALLY_RETURN_IF_ERROR(SetShape(call, {x.shape[0], a.groups}, out));
  const TensorSpec stat{StatDType(x.dtype), out[0].shape};
  out = {x, stat, stat};
  return absl::OkStatus();
}

// The groups are those of the statistics [N, groups].
absl::Status CheckGrad(const OpCall& call) {
  TALLY_RETURN_IF_ERROR(CheckChannelInput(call, 1, kGradNames));
  const TensorSpec &x = call.in[1], &mean = call.in[2];
  if (call.in[0] != x) return InvalidCall(call, "dy and x differ", kGradNames);
  if (mean.dtype != StatDType(x.dtype) || mean.rank() != 2 || mean.shape[0] != x.shape[0] ||
      call.in[3] != mean) {
    return InvalidCall(
        call,
        absl::StrCat("wants statistics ", Name(StatDType(x.dtype)), "[", x.shape[0], ",groups]"),
        kGradNames);
  }
  return CheckGroups(call, x, mean.shape[1], kGradNames);
}

absl::Status InferGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 5));
  TALLY_RETURN_IF_ERROR(CheckGrad(call));
  TALLY_RETURN_IF_ERROR(CheckChannelParam(call, call.in[1], 4, kGradNames));
  out = {call.in[1]};
  return absl::OkStatus();
}

absl::Status InferParamGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 4));
  TALLY_RETURN_IF_ERROR(CheckGrad(call));
  const TensorSpec param{call.in[1].dtype, {call.in[1].shape[1]}};
  out = {param, param};
  return absl::OkStatus();
}

ChannelNorm Forward(const TensorSpec& x, const Attrs& attrs) {
  return ChannelNormOf(x, attrs.As<GroupNormAttrs>().groups);
}
ChannelNorm Backward(const TensorSpec& x, const TensorSpec& mean) {
  return ChannelNormOf(x, mean.shape[1]);
}

Cost Price(const OpCall& call) { return PriceChannelNorm(Forward(call.in[0], call.attrs)); }
Cost PriceGrad(const OpCall& call) {
  return PriceChannelNormGrad(Backward(call.in[1], call.in[2]));
}
Cost PriceParamGrad(const OpCall& call) {
  return PriceChannelNormParamGrad(Backward(call.in[1], call.in[2]));
}

absl::Status Run(const KernelArgs& k) {
  return RunChannelNorm(Forward(k.in[0]->spec(), k.attrs), k.As<GroupNormAttrs>().eps, k);
}
absl::Status RunGrad(const KernelArgs& k) {
  return RunChannelNormGrad(Backward(k.in[1]->spec(), k.in[2]->spec()), k);
}
absl::Status RunParamGrad(const KernelArgs& k) {
  return RunChannelNormParamGrad(Backward(k.in[1]->spec(), k.in[2]->spec()), k);
}

void RefuseStatistics(const GradArgs& g) {
  if (g.has_dy(1) || g.has_dy(2)) ThrowInvalid("group_norm: mean and rstd have no gradient");
}

Tensors GradX(const GradArgs& g) {
  RefuseStatistics(g);
  const auto& a = g.As<GroupNormAttrs>();
  if (g.create_graph()) {
    const Tensor& x = g.in(0);
    const Tensor dyw = Mul(g.dy(), AlongChannels(g.in(1), x.rank()));
    return {ComposedNormGrad(x, dyw, a.groups, a.eps)};
  }
  return {Apply(kGroupNormGrad, {g.dy(), g.in(0), g.out(1), g.out(2), g.in(1)})};
}

Tensors GradParams(const GradArgs& g) {
  RefuseStatistics(g);
  const auto& a = g.As<GroupNormAttrs>();
  if (g.create_graph()) return ComposedNormParamGrad(g.in(0), g.dy(), a.groups, a.eps);
  return ApplyAll(kGroupNormParamGrad, {{g.dy(), g.in(0), g.out(1), g.out(2)}});
}

}  // namespace

constinit const OpDef kGroupNorm = {
    .name = "group_norm",
    .attrs = GroupNormAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .reads = In(0) | In(1) | Out(1) | Out(2), .fn = GradX},
              {.of = {1, 2}, .reads = In(0) | Out(1) | Out(2), .fn = GradParams}},
};

constinit const OpDef kGroupNormGrad = {
    .name = "group_norm_grad",
    .infer = InferGrad,
    .cost = PriceGrad,
    .kernel = {.cpu = RunGrad, .cuda = RunGrad},
};

constinit const OpDef kGroupNormParamGrad = {
    .name = "group_norm_param_grad",
    .infer = InferParamGrad,
    .cost = PriceParamGrad,
    .kernel = {.cpu = RunParamGrad, .cuda = RunParamGrad},
};

Tensor GroupNorm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                 double eps) {
  RequireDefined("group_norm", {x});
  if (x.rank() < 2) {
    ThrowInvalid(absl::StrCat("group_norm: wants x [N,C,...]: x is ", x.spec().ToString()));
  }
  const TensorSpec param{x.dtype(), {x.dim(1)}};
  const Tensor w = weight.defined() ? weight : Fill(param, 1, x.device());
  const Tensor b = bias.defined() ? bias : Fill(param, 0, x.device());
  return ApplyAll(kGroupNorm, {{x, w, b}}, GroupNormAttrs{groups, eps})[0];
}

OpFamily GroupNormOps() {
  static const OpDef* const kOps[] = {&kGroupNorm, &kGroupNormGrad, &kGroupNormParamGrad};
  return kOps;
}

}  // namespace tally
