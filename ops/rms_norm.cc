#include "tally/ops/rms_norm.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/norm_call.h"
#include "tally/ops/reduce.h"
#include "tally/ops/unary.h"

namespace tally {

absl::Span<const AttrField> RmsNormAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(RmsNormAttrs, eps),
                                          TALLY_ATTR_OPTIONAL(RmsNormAttrs, offset)};
  return kFields;
}
absl::Span<const AttrField> RmsStandardizeAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(RmsStandardizeAttrs, eps)};
  return kFields;
}
absl::Span<const AttrField> RmsNormGradAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR_OPTIONAL(RmsNormGradAttrs, offset)};
  return kFields;
}

namespace {

using namespace internal;  // NOLINT: what the normalising ops share

constexpr char kNames[] = "x weight";
constexpr char kGradNames[] = "dy x rstd weight";
constexpr char kParam[] = "the weight is";

absl::Status CheckOffset(const OpCall& call, double offset, const char* names) {
  if (std::isfinite(offset)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("the offset is ", offset, "; it is finite"), names);
}

absl::Status InferRmsStandardize(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(CheckNormX(call, 0, kNames));
  TALLY_RETURN_IF_ERROR(CheckNormEps(call, call.As<RmsStandardizeAttrs>().eps, kNames));
  out = {call.in[0], NormStatSpec(call.in[0])};
  return absl::OkStatus();
}

absl::Status InferRmsNorm(const OpCall& call, Specs& out) {
  const auto& a = call.As<RmsNormAttrs>();
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(CheckNormX(call, 0, kNames));
  TALLY_RETURN_IF_ERROR(CheckNormEps(call, a.eps, kNames));
  TALLY_RETURN_IF_ERROR(CheckOffset(call, a.offset, kNames));
  TALLY_RETURN_IF_ERROR(CheckNormParam(call, call.in[0], 1, kParam, kNames));
  out = {call.in[0], NormStatSpec(call.in[0])};
  return absl::OkStatus();
}

absl::Status InferRmsNormGrad(const OpCall& call, Specs& out) {
  const double offset = call.As<RmsNormGradAttrs>().offset;
  if (call.in.size() != 4) TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckNormGrad(call, 3, kGradNames));
  TALLY_RETURN_IF_ERROR(CheckOffset(call, offset, kGradNames));
  if (call.in.size() == 4) {
    TALLY_RETURN_IF_ERROR(CheckNormParam(call, call.in[1], 3, kParam, kGradNames));
  } else if (offset != 0) {
    return InvalidCall(call, "an offset belongs to a weight", kGradNames);
  }
  out = {call.in[1]};
  return absl::OkStatus();
}

absl::Status InferRmsNormParamGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckNormGrad(call, 3, kGradNames));
  out = {TensorSpec{call.in[1].dtype, {call.in[1].shape[-1]}}};
  return absl::OkStatus();
}

Cost PriceRmsStandardize(const OpCall& call) {
  const Count rows = NormRowCount(call.in[0]);
  return {.other = 3 * Count(call.in[0].numel()) + rows, .transcendental = rows};
}
Cost PriceRmsNorm(const OpCall& call) {
  const int scale = call.As<RmsNormAttrs>().offset == 0 ? 1 : 2;
  return PriceRmsStandardize(call) + Cost{.other = scale * Count(call.in[0].numel())};
}
Cost PriceRmsNormGrad(const OpCall& call) {
  int each = call.in.size() == 4 ? 7 : 6;
  if (call.As<RmsNormGradAttrs>().offset != 0) ++each;
  return {.other = each * Count(call.in[1].numel())};
}
Cost PriceRmsNormParamGrad(const OpCall& call) {
  const TensorSpec& x = call.in[1];
  return {.other = 3 * Count(x.numel()) - (x.numel() == 0 ? 0 : x.shape[-1])};
}

absl::Status RunRmsStandardize(const KernelArgs& k) {
  return RunNorm(NormRowsOf(*k.in[0]), k.As<RmsStandardizeAttrs>().eps, k.out[0], nullptr,
                 k.out[1]);
}
absl::Status RunRmsNorm(const KernelArgs& k) {
  NormRows rows = NormRowsOf(*k.in[0]);
  rows.weight = k.in[1]->raw();
  rows.offset = k.As<RmsNormAttrs>().offset;
  return RunNorm(rows, k.As<RmsNormAttrs>().eps, k.out[0], nullptr, k.out[1]);
}

absl::Status RunRmsNormGrad(const KernelArgs& k) {
  NormRows rows = NormRowsOf(*k.in[1]);
  if (k.in.size() == 4) rows.weight = k.in[3]->raw();
  rows.offset = k.As<RmsNormGradAttrs>().offset;
  return RunNormGrad(rows, *k.in[0], nullptr, *k.in[2], k.out[0]);
}

int64_t ParamGradScratch(const OpCall& call) { return NormParamScratch(call.in[1], 1); }
absl::Status RunRmsNormParamGrad(const KernelArgs& k) {
  return RunNormParamGrad(k, *k.in[0], *k.in[1], nullptr, *k.in[2]);
}

void RefuseStatistic(const GradArgs& g) {
  if (g.has_dy(1)) ThrowInvalid("rms_norm: the second output, rstd, has no gradient");
}

// r in ops that have gradients.
Tensor ComposedRstd(const Tensor& x, double eps) {
  return Rsqrt(Add(Mean(Square(x), {-1}, true), eps));
}

// dx = r (g - h mean(g h)).
Tensor ComposedGrad(const Tensor& x, const Tensor& g, double eps) {
  const Tensor rstd = ComposedRstd(x, eps);
  const Tensor h = Mul(x, rstd);
  return Mul(Sub(g, Mul(h, Mean(Mul(g, h), {-1}, true))), rstd);
}

Tensors GradRmsStandardize(const GradArgs& g) {
  RefuseStatistic(g);
  if (g.create_graph()) return {ComposedGrad(g.in(0), g.dy(), g.As<RmsStandardizeAttrs>().eps)};
  return {Apply(kRmsNormGrad, {g.dy(), g.in(0), g.out(1)}, RmsNormGradAttrs{})};
}

Tensors GradRmsNorm(const GradArgs& g) {
  RefuseStatistic(g);
  const auto& a = g.As<RmsNormAttrs>();
  if (g.create_graph()) {
    const Tensor scale = a.offset == 0 ? g.in(1) : Add(g.in(1), a.offset);
    return {ComposedGrad(g.in(0), Mul(g.dy(), scale), a.eps)};
  }
  return {Apply(kRmsNormGrad, {g.dy(), g.in(0), g.out(1), g.in(1)}, RmsNormGradAttrs{a.offset})};
}

// dw = sum over rows of dy h.
Tensors GradWeight(const GradArgs& g) {
  RefuseStatistic(g);
  if (g.create_graph()) {
    const Tensor h = Mul(g.in(0), ComposedRstd(g.in(0), g.As<RmsNormAttrs>().eps));
    return {SumTo(Mul(g.dy(), h), g.in_spec(1).shape)};
  }
  return {Apply(kRmsNormParamGrad, {g.dy(), g.in(0), g.out(1)})};
}

}  // namespace

constinit const OpDef kRmsNorm = {
    .name = "rms_norm",
    .attrs = RmsNormAttrs::Fields,
    .infer = InferRmsNorm,
    .cost = PriceRmsNorm,
    .kernel = {.cpu = RunRmsNorm, .cuda = RunRmsNorm},
    .grads = {{.of = {0}, .reads = In(0) | In(1) | Out(1), .fn = GradRmsNorm},
              {.of = {1}, .reads = In(0) | Out(1), .fn = GradWeight}},
};

constinit const OpDef kRmsStandardize = {
    .name = "rms_standardize",
    .attrs = RmsStandardizeAttrs::Fields,
    .infer = InferRmsStandardize,
    .cost = PriceRmsStandardize,
    .kernel = {.cpu = RunRmsStandardize, .cuda = RunRmsStandardize},
    .grads = {{.of = {0}, .reads = In(0) | Out(1), .fn = GradRmsStandardize}},
};

constinit const OpDef kRmsNormGrad = {
    .name = "rms_norm_grad",
    .attrs = RmsNormGradAttrs::Fields,
    .infer = InferRmsNormGrad,
    .cost = PriceRmsNormGrad,
    .kernel = {.cpu = RunRmsNormGrad, .cuda = RunRmsNormGrad},
};

constinit const OpDef kRmsNormParamGrad = {
    .name = "rms_norm_param_grad",
    .infer = InferRmsNormParamGrad,
    .cost = PriceRmsNormParamGrad,
    .scratch = ParamGradScratch,
    .kernel = {.cpu = RunRmsNormParamGrad, .cuda = RunRmsNormParamGrad},
};

Tensor RmsNorm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options) {
  if (weight.defined()) {
    return Apply(kRmsNorm, {x, weight}, RmsNormAttrs{options.eps, options.offset});
  }
  if (options.offset != 0) {
    ThrowInvalid(absl::StrCat("rms_norm: the offset ", options.offset,
                              " is added to a weight, and there is none"));
  }
  return Apply(kRmsStandardize, {x}, RmsStandardizeAttrs{options.eps});
}

OpFamily RmsNormOps() {
  static const OpDef* const kOps[] = {&kRmsNorm, &kRmsStandardize, &kRmsNormGrad,
                                      &kRmsNormParamGrad};
  return kOps;
}

}  // namespace tally
