#include "tally/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/channel_norm.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/defined.h"
#include "tally/ops/rows.h"
#include "tally/ops/unary.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> BatchNormAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(BatchNormAttrs, eps)};
  return kFields;
}
absl::Span<const AttrField> RunningUpdateAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(RunningUpdateAttrs, momentum),
                                          TALLY_ATTR(RunningUpdateAttrs, eps),
                                          TALLY_ATTR(RunningUpdateAttrs, count)};
  return kFields;
}

namespace {

constexpr char kNames[] = "x weight bias";
constexpr char kGradNames[] = "dy x mean rstd weight";
constexpr char kRunningNames[] = "running_mean running_var mean rstd";

TensorSpec StatSpec(const TensorSpec& x) { return {StatDType(x.dtype), {x.shape[1]}}; }

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckChannelInput(call, 0, kNames));
  const TensorSpec& x = call.in[0];
  TALLY_RETURN_IF_ERROR(CheckChannelParam(call, x, 1, kNames));
  TALLY_RETURN_IF_ERROR(CheckChannelParam(call, x, 2, kNames));
  TALLY_RETURN_IF_ERROR(CheckEps(call, call.As<BatchNormAttrs>().eps, kNames));
  out = {x, StatSpec(x), StatSpec(x)};
  return absl::OkStatus();
}

absl::Status CheckGrad(const OpCall& call) {
  TALLY_RETURN_IF_ERROR(CheckChannelInput(call, 1, kGradNames));
  const TensorSpec& x = call.in[1];
  if (call.in[0] != x) return InvalidCall(call, "dy and x differ", kGradNames);
  if (call.in[2] == StatSpec(x) && call.in[3] == StatSpec(x)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("wants statistics ", StatSpec(x).ToString()), kGradNames);
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

Cost Price(const OpCall& call) { return PriceChannelNorm(ChannelNormOf(call.in[0], 0)); }
Cost PriceGrad(const OpCall& call) { return PriceChannelNormGrad(ChannelNormOf(call.in[1], 0)); }
Cost PriceParamGrad(const OpCall& call) {
  return PriceChannelNormParamGrad(ChannelNormOf(call.in[1], 0));
}

absl::Status Run(const KernelArgs& k) {
  return RunChannelNorm(ChannelNormOf(k.in[0]->spec(), 0), k.As<BatchNormAttrs>().eps, k);
}
absl::Status RunGrad(const KernelArgs& k) {
  return RunChannelNormGrad(ChannelNormOf(k.in[1]->spec(), 0), k);
}
absl::Status RunParamGrad(const KernelArgs& k) {
  return RunChannelNormParamGrad(ChannelNormOf(k.in[1]->spec(), 0), k);
}

void RefuseStatistics(const GradArgs& g) {
  if (g.has_dy(1) || g.has_dy(2)) ThrowInvalid("batch_norm: mean and rstd have no gradient");
}

Tensors GradX(const GradArgs& g) {
  RefuseStatistics(g);
  if (g.create_graph()) {
    const Tensor& x = g.in(0);
    const Tensor dyw = Mul(g.dy(), AlongChannels(g.in(1), x.rank()));
    return {ComposedNormGrad(x, dyw, 0, g.As<BatchNormAttrs>().eps)};
  }
  return {Apply(kBatchNormGrad, {g.dy(), g.in(0), g.out(1), g.out(2), g.in(1)})};
}

Tensors GradParams(const GradArgs& g) {
  RefuseStatistics(g);
  if (g.create_graph()) {
    return ComposedNormParamGrad(g.in(0), g.dy(), 0, g.As<BatchNormAttrs>().eps);
  }
  return ApplyAll(kBatchNormParamGrad, {{g.dy(), g.in(0), g.out(1), g.out(2)}});
}

// ---- running_update_

absl::Status InferRunning(const OpCall& call, Specs&) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 4));
  const TensorSpec& mean = call.in[0];
  TALLY_RETURN_IF_ERROR(WantFloat(call, kRunningNames));
  const TensorSpec stat{StatDType(mean.dtype), mean.shape};
  if (call.in[1] != mean || mean.rank() != 1) {
    return InvalidCall(call, "running statistics are two of one spec [C]", kRunningNames);
  }
  if (call.in[2] != stat || call.in[3] != stat) {
    return InvalidCall(call, absl::StrCat("wants statistics ", stat.ToString()), kRunningNames);
  }
  const auto& a = call.As<RunningUpdateAttrs>();
  if (a.count < 2) {
    return InvalidCall(call,
                       absl::StrCat("the unbiased variance of ", a.count,
                                    " values a channel does not exist; it takes 2 or more"),
                       kRunningNames);
  }
  if (!(a.momentum >= 0 && a.momentum <= 1)) {
    return InvalidCall(call, absl::StrCat("momentum is ", a.momentum, ", not in [0, 1]"),
                       kRunningNames);
  }
  return CheckEps(call, a.eps, kRunningNames);
}

Cost PriceRunning(const OpCall& call) { return {.other = 10 * Count(call.in[0].numel())}; }

absl::Status RunRunning(const KernelArgs& k) {
  const auto& a = k.As<RunningUpdateAttrs>();
  if (k.out[0].device().kind != DeviceKind::kCpu) {
    return OnGpu(k.out[0].device(), [&](const GpuCall& call) {
      return LaunchRunningUpdate(call, k.out[0].dtype(), k.out[0].numel(), a.momentum, a.eps,
                                 static_cast<double>(a.count), k.in[2]->raw(), k.in[3]->raw(),
                                 k.out[0].raw(), k.out[1].raw());
    });
  }
  VisitFloat(k.out[0].dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const double n = static_cast<double>(a.count);
    T *running_mean = k.Out<T>(0), *running_var = k.Out<T>(1);
    const auto blend = [&](T& running, double value) {
      const double old = static_cast<double>(Load(running));
      running = Store<T>(static_cast<C>((1 - a.momentum) * old + a.momentum * value));
    };
    for (int64_t c = 0; c < k.out[0].numel(); ++c) {
      const double rstd = static_cast<double>(k.In<C>(3)[c]);
      // What rounding leaves of a variance of 0 may be negative.
      const double var = std::max(0.0, 1 / (rstd * rstd) - a.eps);
      blend(running_mean[c], static_cast<double>(k.In<C>(2)[c]));
      blend(running_var[c], var * (n / (n - 1)));
    }
  });
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kBatchNorm = {
    .name = "batch_norm",
    .attrs = BatchNormAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .reads = In(0) | In(1) | Out(1) | Out(2), .fn = GradX},
              {.of = {1, 2}, .reads = In(0) | Out(1) | Out(2), .fn = GradParams}},
};

constinit const OpDef kBatchNormGrad = {
    .name = "batch_norm_grad",
    .infer = InferGrad,
    .cost = PriceGrad,
    .kernel = {.cpu = RunGrad, .cuda = RunGrad},
};

constinit const OpDef kBatchNormParamGrad = {
    .name = "batch_norm_param_grad",
    .infer = InferParamGrad,
    .cost = PriceParamGrad,
    .kernel = {.cpu = RunParamGrad, .cuda = RunParamGrad},
};

constinit const OpDef kRunningUpdate = {
    .name = "running_update_",
    .kind = OpKind::kUpdate,
    .attrs = RunningUpdateAttrs::Fields,
    .infer = InferRunning,
    .cost = PriceRunning,
    .kernel = {.cpu = RunRunning, .cuda = RunRunning},
    .writes = {0, 1},
    .no_gradient = {2, 3},
};

BatchNormed BatchNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const TensorArg in[] = {x, weight, bias};
  const Tensors out = ApplyAll(kBatchNorm, in, BatchNormAttrs{eps});
  return {out[0], out[1], out[2]};
}

void UpdateRunning(const Tensor& running_mean, const Tensor& running_var, const BatchNormed& batch,
                   int64_t count, double momentum, double eps) {
  RequireDefined("running_update_", {running_mean, running_var, batch.mean, batch.rstd});
  if (SharesStorage(running_mean, running_var)) {
    ThrowInvalid(
        "running_update_: the running mean and variance share a storage; give each its own");
  }
  const TensorArg in[] = {running_mean, running_var, batch.mean, batch.rstd};
  ApplyAll(kRunningUpdate, in, RunningUpdateAttrs{momentum, eps, count});
}

Tensor BatchNormInference(const Tensor& x, const Tensor& weight, const Tensor& bias,
                          const Tensor& running_mean, const Tensor& running_var, double eps) {
  RequireDefined("batch_norm", {x, weight, bias, running_mean, running_var});
  for (const Tensor* t : {&weight, &bias, &running_mean, &running_var}) {
    if (x.rank() >= 2 && t->shape() == Shape({x.dim(1)})) continue;
    ThrowInvalid(
        absl::StrCat("batch_norm: parameters and running statistics have one value a "
                     "channel of x [N,C,...]: x is ",
                     x.spec().ToString(), ", got ", t->spec().ToString()));
  }
  const Tensor rstd = Rsqrt(Add(running_var, eps));
  const Tensor scale = Mul(weight, Cast(rstd, x.dtype()));
  const Tensor shift = Sub(bias, Mul(Cast(running_mean, x.dtype()), scale));
  return Add(Mul(x, AlongChannels(scale, x.rank())), AlongChannels(shift, x.rank()));
}

OpFamily BatchNormOps() {
  static const OpDef* const kOps[] = {&kBatchNorm, &kBatchNormGrad, &kBatchNormParamGrad,
                                      &kRunningUpdate};
  return kOps;
}

}  // namespace tally
