#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/pool.h"
#include "tally/ops/pool_gpu.h"
#include "tally/ops/pool_planes.h"
#include "tally/ops/rows.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

namespace {
constexpr AttrField kFields[] = {TALLY_ATTR(AvgPoolAttrs, kernel_h),
                                 TALLY_ATTR(AvgPoolAttrs, kernel_w),
                                 TALLY_ATTR(AvgPoolAttrs, stride_h),
                                 TALLY_ATTR(AvgPoolAttrs, stride_w),
                                 TALLY_ATTR(AvgPoolAttrs, padding_h),
                                 TALLY_ATTR(AvgPoolAttrs, padding_w),
                                 TALLY_ATTR(AvgPoolAttrs, count_include_pad),
                                 TALLY_ATTR(AvgPoolAttrs, size_h),
                                 TALLY_ATTR(AvgPoolAttrs, size_w)};
}  // namespace

absl::Span<const AttrField> AvgPoolAttrs::Fields() { return absl::MakeConstSpan(kFields, 7); }
absl::Span<const AttrField> AvgPoolAttrs::GradFields() { return kFields; }

// ---- what both kinds of pools share

internal::GpuPool OnDevice(const PoolPlanes& p, const void* from, void* to) {
  return {.dtype = p.dtype,
          .planes = p.planes,
          .h = p.h,
          .w = p.w,
          .count_include_pad = p.count_include_pad,
          .from = from,
          .to = to};
}

absl::Status WantPlanes(const OpCall& call) {
  const TensorSpec& x = call.in[0];
  TALLY_RETURN_IF_ERROR(WantFloat(call));
  if (x.rank() != 4) return InvalidCall(call, "wants images [N,C,H,W]");
  return FitsWindows(x.shape.dims()) ? absl::OkStatus() : InvalidCall(call, "is too large");
}

absl::Status ResolvePool(const OpCall& call, const char* axis, WindowAxis& a) {
  TALLY_RETURN_IF_ERROR(ResolveWindow(call, axis, "x y", a));
  if (a.padding <= a.extent() / 2) return absl::OkStatus();
  return InvalidCall(
      call, absl::StrCat("padding ", a.padding, " of the ", axis, " is more than half of the ",
                         a.extent(), " that the kernel spans"));
}

Tensor AsPlanes(const char* op, const Tensor& x) {
  RequireDefined(op, {x});
  if (x.rank() != 3) {
    ThrowInvalid(absl::StrCat(op, ": wants x [N,C,L]: x is ", x.spec().ToString()));
  }
  return Unsqueeze(x, 2);
}

namespace {

PoolPlanes PlanesOf(const Shape& planes, int64_t in_h, int64_t in_w, const AvgPoolAttrs& a) {
  return {.planes = planes[0] * planes[1],
          .h = {.in = in_h, .kernel = a.kernel_h, .stride = a.stride_h, .padding = a.padding_h},
          .w = {.in = in_w, .kernel = a.kernel_w, .stride = a.stride_w, .padding = a.padding_w},
          .count_include_pad = a.count_include_pad};
}

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantPlanes(call));
  const Shape& x = call.in[0].shape;
  PoolPlanes p = PlanesOf(x, x[2], x[3], call.As<AvgPoolAttrs>());
  TALLY_RETURN_IF_ERROR(ResolvePool(call, "height", p.h));
  TALLY_RETURN_IF_ERROR(ResolvePool(call, "width", p.w));
  return SetShape(call, {x[0], x[1], p.h.out, p.w.out}, out);
}

absl::Status InferGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantPlanes(call));
  const Shape& dy = call.in[0].shape;
  const auto& a = call.As<AvgPoolAttrs>();
  PoolPlanes p = PlanesOf(dy, a.size_h, a.size_w, a);
  TALLY_RETURN_IF_ERROR(ResolvePool(call, "height", p.h));
  TALLY_RETURN_IF_ERROR(ResolvePool(call, "width", p.w));
  if (dy[2] != p.h.out || dy[3] != p.w.out) {
    return InvalidCall(call, absl::StrCat("planes of dy must be ", p.h.out, "x", p.w.out), "dy");
  }
  return SetShape(call, {dy[0], dy[1], a.size_h, a.size_w}, out);
}

Count Taps(const OpCall& call) {
  const auto& a = call.As<AvgPoolAttrs>();
  return Count(a.kernel_h) * a.kernel_w;
}
Cost Price(const OpCall& call) { return {.other = Count(call.out[0].numel()) * Taps(call)}; }
Cost PriceGrad(const OpCall& call) {
  return {.other = Count(call.in[0].numel()) * (Taps(call) + 1)};
}

// Sizes of a call, whose planes of x are `x` and those of y `y`.
PoolPlanes PlanesOf(const Tensor& x, const Tensor& y, const AvgPoolAttrs& a) {
  PoolPlanes p = PlanesOf(x.shape(), x.dim(2), x.dim(3), a);
  p.dtype = x.dtype();
  p.h.out = y.dim(2);
  p.w.out = y.dim(3);
  return p;
}

absl::Status Run(const KernelArgs& k) {
  const Tensor &x = *k.in[0], &y = k.out[0];
  if (y.numel() == 0) return absl::OkStatus();
  const PoolPlanes p = PlanesOf(x, y, k.As<AvgPoolAttrs>());
  if (y.device() == kCpu) return RunAvgPool(p, x.raw(), y.raw()), absl::OkStatus();
  return OnGpu(y.device(), [&](const GpuCall& call) {
    return internal::LaunchAvgPool(call, OnDevice(p, x.raw(), y.raw()));
  });
}

absl::Status RunGrad(const KernelArgs& k) {
  const Tensor &dy = *k.in[0], &dx = k.out[0];
  if (dx.numel() == 0) return absl::OkStatus();
  const PoolPlanes p = PlanesOf(dx, dy, k.As<AvgPoolAttrs>());
  if (dx.device() == kCpu) return RunAvgPoolGrad(p, dy.raw(), dx.raw()), absl::OkStatus();
  return OnGpu(dx.device(), [&](const GpuCall& call) {
    return internal::LaunchAvgPoolGrad(call, OnDevice(p, dy.raw(), dx.raw()));
  });
}

// Averages are linear: each is the other's gradient.
Tensors Grad(const GradArgs& g) {
  AvgPoolAttrs a = g.As<AvgPoolAttrs>();
  a.size_h = g.in_spec(0).shape[2];
  a.size_w = g.in_spec(0).shape[3];
  return {Apply(kAvgPool2dGrad, {g.dy()}, a)};
}
Tensors GradOfGrad(const GradArgs& g) {
  AvgPoolAttrs a = g.As<AvgPoolAttrs>();
  a.size_h = a.size_w = 0;
  return {Apply(kAvgPool2d, {g.dy()}, a)};
}

}  // namespace

constinit const OpDef kAvgPool2d = {
    .name = "avg_pool2d",
    .attrs = AvgPoolAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .fn = Grad}},
};

constinit const OpDef kAvgPool2dGrad = {
    .name = "avg_pool2d_grad",
    .attrs = AvgPoolAttrs::GradFields,
    .infer = InferGrad,
    .cost = PriceGrad,
    .kernel = {.cpu = RunGrad, .cuda = RunGrad},
    .grads = {{.of = {0}, .fn = GradOfGrad}},
};

Tensor AvgPool2d(const Tensor& x, const AvgPool2dOptions& o) {
  return Apply(kAvgPool2d, {x},
               AvgPoolAttrs{.kernel_h = o.kernel[0],
                            .kernel_w = o.kernel[1],
                            .stride_h = StrideOr(o.stride[0], o.kernel[0]),
                            .stride_w = StrideOr(o.stride[1], o.kernel[1]),
                            .padding_h = o.padding[0],
                            .padding_w = o.padding[1],
                            .count_include_pad = o.count_include_pad});
}

Tensor AvgPool1d(const Tensor& x, const AvgPool1dOptions& o) {
  const Tensor y = AvgPool2d(AsPlanes("avg_pool1d", x), {.kernel = {1, o.kernel},
                                                         .stride = {1, o.stride},
                                                         .padding = {0, o.padding},
                                                         .count_include_pad = o.count_include_pad});
  return Squeeze(y, 2);
}

OpFamily AvgPoolOps() {
  static const OpDef* const kOps[] = {&kAvgPool2d, &kAvgPool2dGrad};
  return kOps;
}

}  // namespace tally
