#include "tally/ops/reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/defined.h"
#include "tally/ops/prod_grad.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/reduce_plan.h"
#include "tally/ops/rows.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> ReduceAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ReduceAttrs, axes),
                                          TALLY_ATTR(ReduceAttrs, keepdim)};
  return kFields;
}
namespace {

absl::Status InferReduce(const OpCall& call, Specs& out) {
  const auto& a = call.As<ReduceAttrs>();
  return InferAxes(call, a.axes, a.keepdim, out);
}

absl::Status InferExtreme(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(InferReduce(call, out));
  const uint32_t mask = AxisMask(call.As<ReduceAttrs>().axes, call.in[0].rank());
  if (CountOf(call.in[0].shape, mask) == 0 && out[0].numel() > 0) {
    return InvalidCall(call, "has no value over no elements");
  }
  return absl::OkStatus();
}

Cost PriceReduce(const OpCall& call) {
  const int64_t n =
      CountOf(call.in[0].shape, AxisMask(call.As<ReduceAttrs>().axes, call.in[0].rank()));
  return {.other = call.out[0].numel() * Folds(n)};
}
Cost PriceMean(const OpCall& call) {
  return PriceReduce(call) + Cost{.other = call.out[0].numel()};
}
int64_t ReduceScratch(const OpCall& call) {
  const TensorSpec& x = call.in[0];
  return FoldScratch(x.dtype, PlanFold(x.shape, AxisMask(call.As<ReduceAttrs>().axes, x.rank())));
}

// `out` from a result in the compute type. A mean over nothing is 0 / 0.
void Finish(DType dtype, const void* result, Tensor& out, bool divide, int64_t n) {
  VisitFloat(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const C* from = static_cast<const C*>(result);
    T* to = out.data<T>();
    if (!divide && static_cast<const void*>(to) == result) return;
    ForRows(out.numel(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = Store<T>(divide ? from[i] / static_cast<C>(n) : from[i]);
      }
    });
  });
}

absl::Status RunFold(const KernelArgs& k, FoldKind kind, bool divide) {
  const Tensor& x = *k.in[0];
  const uint32_t mask = AxisMask(k.As<ReduceAttrs>().axes, x.rank());
  const FoldPlan plan = PlanFold(x.shape(), mask);
  if (plan.empty()) return absl::OkStatus();
  if (x.device().kind != DeviceKind::kCpu) {
    const double divisor = divide ? static_cast<double>(CountOf(x.shape(), mask)) : 1;
    return OnGpu(x.device(), [&](const GpuCall& call) {
      return FoldOnGpu(call, kind, x.dtype(), plan, x.raw(), x.dtype(), k.out[0].raw(), k.scratch,
                       divisor);
    });
  }
  const void* result = FoldAll(kind, x.dtype(), plan, x.raw(), k.out[0].raw(), k.scratch);
  Finish(x.dtype(), result, k.out[0], divide, CountOf(x.shape(), mask));
  return absl::OkStatus();
}
absl::Status RunSum(const KernelArgs& k) { return RunFold(k, FoldKind::kSum, false); }
absl::Status RunMean(const KernelArgs& k) { return RunFold(k, FoldKind::kSum, true); }
absl::Status RunMax(const KernelArgs& k) { return RunFold(k, FoldKind::kMax, false); }
absl::Status RunMin(const KernelArgs& k) { return RunFold(k, FoldKind::kMin, false); }
absl::Status RunProd(const KernelArgs& k) { return RunFold(k, FoldKind::kProd, false); }

// dx = dy, spread.
Tensors GradSum(const GradArgs& g) {
  const auto& a = g.As<ReduceAttrs>();
  const Shape& x = g.in_spec(0).shape;
  return {Expand(KeepDims(g.dy(), x, AxisMask(a.axes, x.rank()), a.keepdim), x)};
}

// dx = dy / n, spread.
Tensors GradMean(const GradArgs& g) {
  const auto& a = g.As<ReduceAttrs>();
  const Shape& x = g.in_spec(0).shape;
  const uint32_t mask = AxisMask(a.axes, x.rank());
  const double n = static_cast<double>(CountOf(x, mask));
  return {Expand(Div(KeepDims(g.dy(), x, mask, a.keepdim), n), x)};
}

// dx = [x = y] dy / (how many are equal).
Tensors GradExtreme(const GradArgs& g) {
  const auto& a = g.As<ReduceAttrs>();
  const Shape& x = g.in_spec(0).shape;
  const uint32_t mask = AxisMask(a.axes, x.rank());
  const Tensor y = KeepDims(g.out(0), x, mask, a.keepdim);
  const Tensor dy = KeepDims(g.dy(), x, mask, a.keepdim);
  const Tensor hit = Cast(Equal(g.in(0), y), g.in_spec(0).dtype);
  return {Mul(hit, Div(dy, Sum(hit, a.axes, true)))};
}

}  // namespace

constinit const OpDef kSum = {
    .name = "sum",
    .attrs = ReduceAttrs::Fields,
    .infer = InferReduce,
    .cost = PriceReduce,
    .scratch = ReduceScratch,
    .kernel = {.cpu = RunSum, .cuda = RunSum},
    .grads = {{.of = {0}, .reads = kNothing, .fn = GradSum}},
};

constinit const OpDef kMean = {
    .name = "mean",
    .attrs = ReduceAttrs::Fields,
    .infer = InferReduce,
    .cost = PriceMean,
    .scratch = ReduceScratch,
    .kernel = {.cpu = RunMean, .cuda = RunMean},
    .grads = {{.of = {0}, .reads = kNothing, .fn = GradMean}},
};

constinit const OpDef kMax = {
    .name = "max",
    .attrs = ReduceAttrs::Fields,
    .infer = InferExtreme,
    .cost = PriceReduce,
    .scratch = ReduceScratch,
    .kernel = {.cpu = RunMax, .cuda = RunMax},
    .grads = {{.of = {0}, .reads = In(0) | Out(0), .fn = GradExtreme}},
};

constinit const OpDef kMin = {
    .name = "min",
    .attrs = ReduceAttrs::Fields,
    .infer = InferExtreme,
    .cost = PriceReduce,
    .scratch = ReduceScratch,
    .kernel = {.cpu = RunMin, .cuda = RunMin},
    .grads = {{.of = {0}, .reads = In(0) | Out(0), .fn = GradExtreme}},
};

constinit const OpDef kProd = {
    .name = "prod",
    .attrs = ReduceAttrs::Fields,
    .infer = InferReduce,
    .cost = PriceReduce,
    .scratch = ReduceScratch,
    .kernel = {.cpu = RunProd, .cuda = RunProd},
    .grads = {{.of = {0}, .reads = In(0), .fn = GradProd}},
};

Tensor Sum(const Tensor& x, const Axes& axes, bool keepdim) {
  return Apply(kSum, {x}, ReduceAttrs{axes, keepdim});
}
Tensor Mean(const Tensor& x, const Axes& axes, bool keepdim) {
  return Apply(kMean, {x}, ReduceAttrs{axes, keepdim});
}
Tensor Max(const Tensor& x, const Axes& axes, bool keepdim) {
  return Apply(kMax, {x}, ReduceAttrs{axes, keepdim});
}
Tensor Min(const Tensor& x, const Axes& axes, bool keepdim) {
  return Apply(kMin, {x}, ReduceAttrs{axes, keepdim});
}
Tensor Prod(const Tensor& x, const Axes& axes, bool keepdim) {
  return Apply(kProd, {x}, ReduceAttrs{axes, keepdim});
}
Tensor SumTo(const Tensor& x, const Shape& shape) {
  RequireDefined("sum_to", {x});
  const int extra = x.rank() - shape.rank();
  bool fits = extra >= 0;
  absl::InlinedVector<int, kMaxRank> axes;
  bool inside = false;  // an axis that `shape` has at size 1
  for (int a = 0; fits && a < x.rank(); ++a) {
    if (a < extra) {
      axes.push_back(a);
    } else if (shape[a - extra] != x.dim(a)) {
      fits = shape[a - extra] == 1;
      axes.push_back(a);
      inside = true;
    }
  }
  if (!fits) {
    ThrowInvalid(absl::StrCat("sum_to: ", shape.ToString(), " does not broadcast to x: x is ",
                              x.spec().ToString()));
  }
  if (axes.empty()) return x;
  if (!inside) return Sum(x, Axes(absl::MakeConstSpan(axes)), false);
  Tensor y = Sum(x, Axes(absl::MakeConstSpan(axes)), true);
  return extra == 0 ? y : Reshape(y, shape);
}

OpFamily ReduceOps() {
  static const OpDef* const kOps[] = {&kSum, &kMean, &kMax, &kMin, &kProd, &kProdGrad, &kVar, &kArgMax};
  return kOps;
}

}  // namespace tally
