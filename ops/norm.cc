#include "tally/ops/norm.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/norm_call.h"
#include "tally/ops/reduce.h"
#include "tally/ops/unary.h"

namespace tally {

absl::Span<const AttrField> NormAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(NormAttrs, eps)};
  return kFields;
}

namespace {

using namespace internal;  // NOLINT: what the normalising ops share

constexpr char kNames[] = "x weight bias";
constexpr char kGradNames[] = "dy x mean rstd weight";
constexpr char kParams[] = "weight and bias are";

absl::Status CheckX(const OpCall& call) {
  TALLY_RETURN_IF_ERROR(CheckNormX(call, 0, kNames));
  return CheckNormEps(call, call.As<NormAttrs>().eps, kNames);
}

void SetOutputs(const TensorSpec& x, Specs& out) {
  const TensorSpec stat = NormStatSpec(x);
  out = {x, stat, stat};
}

absl::Status InferStandardize(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(CheckX(call));
  SetOutputs(call.in[0], out);
  return absl::OkStatus();
}

absl::Status InferLayerNorm(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckX(call));
  TALLY_RETURN_IF_ERROR(CheckNormParam(call, call.in[0], 1, kParams, kNames));
  TALLY_RETURN_IF_ERROR(CheckNormParam(call, call.in[0], 2, kParams, kNames));
  SetOutputs(call.in[0], out);
  return absl::OkStatus();
}

absl::Status InferLayerNormGrad(const OpCall& call, Specs& out) {
  if (call.in.size() != 5) TALLY_RETURN_IF_ERROR(WantInputs(call, 4));
  TALLY_RETURN_IF_ERROR(CheckNormGrad(call, 4, kGradNames));
  if (call.in.size() == 5) {
    TALLY_RETURN_IF_ERROR(CheckNormParam(call, call.in[1], 4, kParams, kGradNames));
  }
  out = {call.in[1]};
  return absl::OkStatus();
}

absl::Status InferParamGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 4));
  TALLY_RETURN_IF_ERROR(CheckNormGrad(call, 4, kGradNames));
  const TensorSpec param{call.in[1].dtype, {call.in[1].shape[-1]}};
  out = {param, param};
  return absl::OkStatus();
}

Cost PriceStandardize(const OpCall& call) {
  const Count rows = NormRowCount(call.in[0]);
  return {.other = 5 * Count(call.in[0].numel()) + rows, .transcendental = rows};
}
Cost PriceLayerNorm(const OpCall& call) {
  return PriceStandardize(call) + Cost{.other = 2 * Count(call.in[0].numel())};
}
Cost PriceLayerNormGrad(const OpCall& call) {
  return {.other = (call.in.size() == 5 ? 10 : 9) * Count(call.in[1].numel())};
}
Cost PriceParamGrad(const OpCall& call) {
  const TensorSpec& x = call.in[1];
  return {.other = 5 * Count(x.numel()) - (x.numel() == 0 ? 0 : 2 * x.shape[-1])};
}

absl::Status Run(const KernelArgs& k) {
  NormRows rows = NormRowsOf(*k.in[0]);
  if (k.in.size() == 3) {
    rows.weight = k.in[1]->raw();
    rows.bias = k.in[2]->raw();
  }
  return RunNorm(rows, k.As<NormAttrs>().eps, k.out[0], &k.out[1], k.out[2]);
}

absl::Status RunGrad(const KernelArgs& k) {
  NormRows rows = NormRowsOf(*k.in[1]);
  if (k.in.size() == 5) rows.weight = k.in[4]->raw();
  return RunNormGrad(rows, *k.in[0], k.in[2], *k.in[3], k.out[0]);
}

int64_t ParamGradScratch(const OpCall& call) { return NormParamScratch(call.in[1], 2); }
absl::Status RunParamGrad(const KernelArgs& k) {
  return RunNormParamGrad(k, *k.in[0], *k.in[1], k.in[2], *k.in[3]);
}

void RefuseStatistics(const GradArgs& g) {
  if (g.has_dy(1) || g.has_dy(2)) ThrowInvalid("layer_norm: mean and rstd have no gradient");
}

// h and rstd in ops that have gradients.
struct Composed {
  Tensor h, rstd;
};
Composed Compose(const Tensor& x, double eps) {
  const Tensor centered = Sub(x, Mean(x, {-1}, true));
  const Tensor rstd = Rsqrt(Add(Mean(Square(centered), {-1}, true), eps));
  return {Mul(centered, rstd), rstd};
}

// dx = rstd (g - mean(g) - h mean(g h)).
Tensor ComposedGrad(const Tensor& x, const Tensor& g, double eps) {
  const auto [h, rstd] = Compose(x, eps);
  const Tensor centered = Sub(g, Mean(g, {-1}, true));
  return Mul(Sub(centered, Mul(h, Mean(Mul(g, h), {-1}, true))), rstd);
}

Tensors GradStandardize(const GradArgs& g) {
  RefuseStatistics(g);
  const double eps = g.As<NormAttrs>().eps;
  if (g.create_graph()) return {ComposedGrad(g.in(0), g.dy(), eps)};
  return {Apply(kLayerNormGrad, {g.dy(), g.in(0), g.out(1), g.out(2)})};
}

Tensors GradLayerNorm(const GradArgs& g) {
  RefuseStatistics(g);
  const double eps = g.As<NormAttrs>().eps;
  if (g.create_graph()) return {ComposedGrad(g.in(0), Mul(g.dy(), g.in(1)), eps)};
  return {Apply(kLayerNormGrad, {g.dy(), g.in(0), g.out(1), g.out(2), g.in(1)})};
}

// dw = sum over rows of dy h, db = of dy.
Tensors GradParams(const GradArgs& g) {
  RefuseStatistics(g);
  if (g.create_graph()) {
    const Shape& shape = g.in_spec(1).shape;
    const Tensor h = Compose(g.in(0), g.As<NormAttrs>().eps).h;
    return {SumTo(Mul(g.dy(), h), shape), SumTo(g.dy(), shape)};
  }
  return ApplyAll(kLayerNormParamGrad, {g.dy(), g.in(0), g.out(1), g.out(2)});
}

}  // namespace

constinit const OpDef kStandardize = {
    .name = "standardize",
    .attrs = NormAttrs::Fields,
    .infer = InferStandardize,
    .cost = PriceStandardize,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .reads = In(0) | Out(1) | Out(2), .fn = GradStandardize}},
};

constinit const OpDef kLayerNorm = {
    .name = "layer_norm",
    .attrs = NormAttrs::Fields,
    .infer = InferLayerNorm,
    .cost = PriceLayerNorm,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .reads = In(0) | In(1) | Out(1) | Out(2), .fn = GradLayerNorm},
              {.of = {1, 2}, .reads = In(0) | Out(1) | Out(2), .fn = GradParams}},
};

constinit const OpDef kLayerNormGrad = {
    .name = "layer_norm_grad",
    .infer = InferLayerNormGrad,
    .cost = PriceLayerNormGrad,
    .kernel = {.cpu = RunGrad, .cuda = RunGrad},
};

constinit const OpDef kLayerNormParamGrad = {
    .name = "layer_norm_param_grad",
    .infer = InferParamGrad,
    .cost = PriceParamGrad,
    .scratch = ParamGradScratch,
    .kernel = {.cpu = RunParamGrad, .cuda = RunParamGrad},
};

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  RequireDefined("layer_norm", {x});
  const NormAttrs attrs{eps};
  if (weight.defined() && bias.defined()) return Apply(kLayerNorm, {x, weight, bias}, attrs);
  for (const Tensor* param : {&weight, &bias}) {
    if (param->defined() && x.rank() > 0 && param->shape() != Shape({x.shape()[-1]})) {
      ThrowInvalid(absl::StrCat("layer_norm: weight and bias have x's last dim: x is ",
                                x.spec().ToString(), ", got ", param->spec().ToString()));
    }
  }
  const Tensor h = Apply(kStandardize, {x}, attrs);
  if (weight.defined()) return Mul(h, weight);
  return bias.defined() ? Add(h, bias) : h;
}

OpFamily NormOps() {
  static const OpDef* const kOps[] = {&kStandardize, &kLayerNorm, &kLayerNormGrad,
                                      &kLayerNormParamGrad};
  return kOps;
}

}  // namespace tally
