#include "tally/ops/norm.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/norm_rows.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/reduce_plan.h"
#include "tally/ops/rows.h"
#include "tally/ops/unary.h"

namespace tally {

absl::Span<const AttrField> NormAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(NormAttrs, eps)};
  return kFields;
}

namespace {

Shape StatShape(const TensorSpec& x) { return x.shape.Without(x.rank() - 1); }

// x is input `index`.
absl::Status CheckX(const OpCall& call, int index, const char* names) {
  const TensorSpec& x = call.in[index];
  if (!IsComputingFloat(x.dtype)) {
    return InvalidCall(call, "computes on f64, f32, bf16 and f16; cast first", names);
  }
  if (x.rank() == 0) return InvalidCall(call, "x has no axis to normalise", names);
  const double eps = call.op.attrs == nullptr ? 0 : call.As<NormAttrs>().eps;
  if (!(eps >= 0) || std::isinf(eps)) {
    return InvalidCall(call, absl::StrCat("eps is ", eps, "; it is 0 or more"), names);
  }
  return absl::OkStatus();
}

absl::Status CheckParam(const OpCall& call, const TensorSpec& x, int index, const char* names) {
  if (call.in[index] == TensorSpec{x.dtype, {x.shape[-1]}}) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("weight and bias are of x's dtype with its last dim"),
                     names);
}

void SetOutputs(const TensorSpec& x, Specs& out) {
  const TensorSpec stat{StatDType(x.dtype), StatShape(x)};
  out = {x, stat, stat};
}

absl::Status InferStandardize(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(CheckX(call, 0, "x"));
  SetOutputs(call.in[0], out);
  return absl::OkStatus();
}

absl::Status InferLayerNorm(const OpCall& call, Specs& out) {
  const char* names = "x weight bias";
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckX(call, 0, names));
  TALLY_RETURN_IF_ERROR(CheckParam(call, call.in[0], 1, names));
  TALLY_RETURN_IF_ERROR(CheckParam(call, call.in[0], 2, names));
  SetOutputs(call.in[0], out);
  return absl::OkStatus();
}

const char kGradNames[] = "dy x mean rstd weight";

absl::Status CheckGrad(const OpCall& call) {
  TALLY_RETURN_IF_ERROR(CheckX(call, 1, kGradNames));
  const TensorSpec& x = call.in[1];
  const TensorSpec stat{StatDType(x.dtype), StatShape(x)};
  if (call.in[0] != x) return InvalidCall(call, "dy and x differ", kGradNames);
  if (call.in[2] != stat || call.in[3] != stat) {
    return InvalidCall(call, absl::StrCat("wants statistics ", stat.ToString()), kGradNames);
  }
  return absl::OkStatus();
}

absl::Status InferLayerNormGrad(const OpCall& call, Specs& out) {
  if (call.in.size() != 5) TALLY_RETURN_IF_ERROR(WantInputs(call, 4));
  TALLY_RETURN_IF_ERROR(CheckGrad(call));
  if (call.in.size() == 5) TALLY_RETURN_IF_ERROR(CheckParam(call, call.in[1], 4, kGradNames));
  out = {call.in[1]};
  return absl::OkStatus();
}

absl::Status InferParamGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 4));
  TALLY_RETURN_IF_ERROR(CheckGrad(call));
  const TensorSpec param{call.in[1].dtype, {call.in[1].shape[-1]}};
  out = {param, param};
  return absl::OkStatus();
}

// Rows that hold elements.
Count RowCount(const TensorSpec& x) { return x.numel() == 0 ? 0 : x.numel() / x.shape[-1]; }

Cost PriceStandardize(const OpCall& call) {
  const Count rows = RowCount(call.in[0]);
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

NormRows RowsOf(const Tensor& x) {
  const int64_t n = x.shape()[-1];
  return {.dtype = x.dtype(), .rows = n == 0 ? 0 : x.numel() / n, .n = n, .x = x.raw()};
}

// The statistics of rows without elements: a mean over nothing.
void FillStats(const KernelArgs& k) {
  for (int i : {1, 2}) {
    VisitFloat(k.out[i].dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* p = k.Out<T>(i);
      std::fill(p, p + k.out[i].numel(), Store<T>(std::nan("")));
    });
  }
}

absl::Status RunNorm(const KernelArgs& k) {
  NormRows rows = RowsOf(*k.in[0]);
  if (rows.n == 0) FillStats(k);
  if (k.in.size() == 3) {
    rows.weight = k.in[1]->raw();
    rows.bias = k.in[2]->raw();
  }
  RunNormRows(rows, k.As<NormAttrs>().eps, k.out[0].raw(), k.out[1].raw(), k.out[2].raw());
  return absl::OkStatus();
}

absl::Status RunLayerNormGrad(const KernelArgs& k) {
  NormRows rows = RowsOf(*k.in[1]);
  if (k.in.size() == 5) rows.weight = k.in[4]->raw();
  RunNormGradRows(rows, k.in[0]->raw(), k.in[2]->raw(), k.in[3]->raw(), k.out[0].raw());
  return absl::OkStatus();
}

// Blocks of rows first, then the blocks' sums as any other sum over rows.
FoldPlan PlanBlocks(const TensorSpec& x) {
  const int64_t rows = x.numel() == 0 ? 0 : x.numel() / x.shape[-1];
  return PlanFold({NormBlocks(rows), x.shape[-1]}, 1);
}
int64_t BlockBytes(const TensorSpec& x) {
  return NormBlocks(x.numel() == 0 ? 0 : x.numel() / x.shape[-1]) * x.shape[-1] *
         ItemSize(StatDType(x.dtype));
}

// dw and db of the blocks, then room for their sums.
int64_t ParamGradScratch(const OpCall& call) {
  const TensorSpec& x = call.in[1];
  return 2 * BlockBytes(x) + FoldScratch(StatDType(x.dtype), PlanBlocks(x)) +
         x.shape[-1] * ItemSize(StatDType(x.dtype));
}

absl::Status RunParamGrad(const KernelArgs& k) {
  const Tensor& x = *k.in[1];
  const int64_t n = x.shape()[-1], bytes = BlockBytes(x.spec());
  if (n == 0) return absl::OkStatus();
  char* blocks = static_cast<char*>(k.scratch);
  char* sum = blocks + 2 * bytes;
  char* rest = sum + n * ItemSize(StatDType(x.dtype()));
  RunNormParamGradBlocks(RowsOf(x), k.in[0]->raw(), k.in[2]->raw(), k.in[3]->raw(), blocks,
                         blocks + bytes);
  const FoldPlan plan = PlanBlocks(x.spec());
  for (int i : {0, 1}) {
    FoldAll(FoldKind::kSum, StatDType(x.dtype()), plan, blocks + i * bytes, sum, rest);
    VisitFloat(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto* from = reinterpret_cast<const ComputeType<T>*>(sum);
      std::transform(from, from + n, k.Out<T>(i), [](ComputeType<T> v) { return Store<T>(v); });
    });
  }
  return absl::OkStatus();
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
    .kernel = {.cpu = RunNorm},
    .grads = {{.of = {0}, .reads = In(0) | Out(1) | Out(2), .fn = GradStandardize}},
};

constinit const OpDef kLayerNorm = {
    .name = "layer_norm",
    .attrs = NormAttrs::Fields,
    .infer = InferLayerNorm,
    .cost = PriceLayerNorm,
    .kernel = {.cpu = RunNorm},
    .grads = {{.of = {0}, .reads = In(0) | In(1) | Out(1) | Out(2), .fn = GradLayerNorm},
              {.of = {1, 2}, .reads = In(0) | Out(1) | Out(2), .fn = GradParams}},
};

constinit const OpDef kLayerNormGrad = {
    .name = "layer_norm_grad",
    .infer = InferLayerNormGrad,
    .cost = PriceLayerNormGrad,
    .kernel = {.cpu = RunLayerNormGrad},
};

constinit const OpDef kLayerNormParamGrad = {
    .name = "layer_norm_param_grad",
    .infer = InferParamGrad,
    .cost = PriceParamGrad,
    .scratch = ParamGradScratch,
    .kernel = {.cpu = RunParamGrad},
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
