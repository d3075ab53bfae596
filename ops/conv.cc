#include "tally/ops/conv.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/conv_kernels.h"
#include "tally/ops/defined.h"
#include "tally/ops/product.h"
#include "tally/ops/reduce.h"
#include "tally/ops/view.h"
#include "tally/ops/window.h"

namespace tally {

namespace {

constexpr AttrField kFields[] = {
    TALLY_ATTR(Conv2dAttrs, stride_h),   TALLY_ATTR(Conv2dAttrs, stride_w),
    TALLY_ATTR(Conv2dAttrs, padding_h),  TALLY_ATTR(Conv2dAttrs, padding_w),
    TALLY_ATTR(Conv2dAttrs, dilation_h), TALLY_ATTR(Conv2dAttrs, dilation_w),
    TALLY_ATTR(Conv2dAttrs, groups),     TALLY_ATTR(Conv2dAttrs, size_h),
    TALLY_ATTR(Conv2dAttrs, size_w)};

}  // namespace

absl::Span<const AttrField> Conv2dAttrs::Fields() { return absl::MakeConstSpan(kFields, 7); }
absl::Span<const AttrField> Conv2dAttrs::GradFields() { return kFields; }

namespace {

constexpr char kForwardNames[] = "x w bias";
constexpr char kInputGradNames[] = "dy w";
constexpr char kWeightGradNames[] = "dy x";

absl::Status WantImages(const OpCall& call, const char* names) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (call.in[i].dtype != call.in[0].dtype) {
      return InvalidCall(call, "operands differ in dtype; cast them", names);
    }
    if (i < 2 && call.in[i].rank() != 4) {
      return InvalidCall(
          call, "wants four axes each: images [N,C,H,W], weights [Co,C/groups,kh,kw]", names);
    }
    if (!FitsWindows(call.in[i].shape.dims())) return InvalidCall(call, "is too large", names);
  }
  if (!ComputesProducts(call.in[0].dtype)) {
    return InvalidCall(call, "computes on f64, f32, bf16 and f16 only", names);
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(const OpCall& call, const char* names) {
  const int groups = call.As<Conv2dAttrs>().groups;
  if (groups >= 1) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("groups are 1 or more, not ", groups), names);
}

// The axes with their `out` still to be set.
void SetAxes(const Conv2dAttrs& a, int64_t in_h, int64_t in_w, int64_t kernel_h, int64_t kernel_w,
             ConvGeometry& g) {
  g.h = {.in = in_h,
         .kernel = kernel_h,
         .stride = a.stride_h,
         .padding = a.padding_h,
         .dilation = a.dilation_h};
  g.w = {.in = in_w,
         .kernel = kernel_w,
         .stride = a.stride_w,
         .padding = a.padding_w,
         .dilation = a.dilation_w};
  g.groups = a.groups;
}

absl::Status CheckChannels(const OpCall& call, const ConvGeometry& g, const char* names) {
  if (g.in_channels % g.groups == 0 && g.out_channels % g.groups == 0) return absl::OkStatus();
  return InvalidCall(call,
                     absl::StrCat("groups=", g.groups, " do not divide ", g.in_channels,
                                  " channels of x and ", g.out_channels, " of y"),
                     names);
}

absl::Status CheckSize(const OpCall& call, const ConvGeometry& g, const char* names) {
  const bool fits = FitsWindows({g.in_group(), g.h.kernel, g.w.kernel, g.w.out}) &&
                    FitsWindows({g.out_channels, g.in_group(), g.h.kernel, g.w.kernel}) &&
                    FitsWindows({g.batch, g.in_channels, g.h.in, g.w.in}) &&
                    FitsWindows({g.batch, g.out_channels, g.h.out, g.w.out});
  return fits ? absl::OkStatus() : InvalidCall(call, "is too large", names);
}

absl::Status WantOutput(const OpCall& call, const Shape& dy, const ConvGeometry& g,
                        const char* names) {
  if (dy[0] == g.batch && dy[1] == g.out_channels && dy[2] == g.h.out && dy[3] == g.w.out) {
    return absl::OkStatus();
  }
  return InvalidCall(call,
                     absl::StrCat("dy must have shape [", g.batch, ",", g.out_channels, ",",
                                  g.h.out, ",", g.w.out, "]"),
                     names);
}

ConvGeometry ForwardGeometry(const Shape& x, const Shape& w, const Conv2dAttrs& a) {
  ConvGeometry g;
  g.batch = x[0];
  g.in_channels = x[1];
  g.out_channels = w[0];
  SetAxes(a, x[2], x[3], w[2], w[3], g);
  return g;
}
ConvGeometry InputGradGeometry(const Shape& dy, const Shape& w, const Conv2dAttrs& a) {
  ConvGeometry g;
  g.batch = dy[0];
  g.in_channels = w[1] * a.groups;
  g.out_channels = w[0];
  SetAxes(a, a.size_h, a.size_w, w[2], w[3], g);
  return g;
}
ConvGeometry WeightGradGeometry(const Shape& dy, const Shape& x, const Conv2dAttrs& a) {
  ConvGeometry g;
  g.batch = x[0];
  g.in_channels = x[1];
  g.out_channels = dy[1];
  SetAxes(a, x[2], x[3], a.size_h, a.size_w, g);
  return g;
}

absl::Status ResolveBoth(const OpCall& call, const char* names, ConvGeometry& g) {
  TALLY_RETURN_IF_ERROR(ResolveWindow(call, "height", names, g.h));
  return ResolveWindow(call, "width", names, g.w);
}

absl::Status InferForward(const OpCall& call, Specs& out) {
  if (call.in.size() != 2 && call.in.size() != 3) {
    return InvalidCall(call,
                       absl::StrCat("takes x, w and perhaps bias, got ", call.in.size(), " inputs"),
                       kForwardNames);
  }
  TALLY_RETURN_IF_ERROR(WantImages(call, kForwardNames));
  TALLY_RETURN_IF_ERROR(CheckGroups(call, kForwardNames));
  const Shape &x = call.in[0].shape, &w = call.in[1].shape;
  ConvGeometry g = ForwardGeometry(x, w, call.As<Conv2dAttrs>());
  TALLY_RETURN_IF_ERROR(CheckChannels(call, g, kForwardNames));
  if (w[1] != g.in_group()) {
    return InvalidCall(call,
                       absl::StrCat("w reads ", w[1], " channels, a group of x has ", g.in_group(),
                                    " (groups=", g.groups, ")"),
                       kForwardNames);
  }
  if (call.in.size() == 3 && call.in[2].shape != Shape{w[0]}) {
    return InvalidCall(call, absl::StrCat("bias must have shape [", w[0], "]"), kForwardNames);
  }
  TALLY_RETURN_IF_ERROR(ResolveBoth(call, kForwardNames, g));
  TALLY_RETURN_IF_ERROR(CheckSize(call, g, kForwardNames));
  return SetShape(call, {g.batch, g.out_channels, g.h.out, g.w.out}, out);
}

absl::Status InferInputGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantImages(call, kInputGradNames));
  TALLY_RETURN_IF_ERROR(CheckGroups(call, kInputGradNames));
  const Shape &dy = call.in[0].shape, &w = call.in[1].shape;
  if (!FitsWindows({w[1], call.As<Conv2dAttrs>().groups})) {
    return InvalidCall(call, "is too large", kInputGradNames);
  }
  ConvGeometry g = InputGradGeometry(dy, w, call.As<Conv2dAttrs>());
  TALLY_RETURN_IF_ERROR(CheckChannels(call, g, kInputGradNames));
  TALLY_RETURN_IF_ERROR(ResolveBoth(call, kInputGradNames, g));
  TALLY_RETURN_IF_ERROR(CheckSize(call, g, kInputGradNames));
  TALLY_RETURN_IF_ERROR(WantOutput(call, dy, g, kInputGradNames));
  return SetShape(call, {g.batch, g.in_channels, g.h.in, g.w.in}, out);
}

absl::Status InferWeightGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantImages(call, kWeightGradNames));
  TALLY_RETURN_IF_ERROR(CheckGroups(call, kWeightGradNames));
  const Shape &dy = call.in[0].shape, &x = call.in[1].shape;
  ConvGeometry g = WeightGradGeometry(dy, x, call.As<Conv2dAttrs>());
  TALLY_RETURN_IF_ERROR(CheckChannels(call, g, kWeightGradNames));
  TALLY_RETURN_IF_ERROR(ResolveBoth(call, kWeightGradNames, g));
  TALLY_RETURN_IF_ERROR(CheckSize(call, g, kWeightGradNames));
  TALLY_RETURN_IF_ERROR(WantOutput(call, dy, g, kWeightGradNames));
  return SetShape(call, {g.out_channels, g.in_group(), g.h.kernel, g.w.kernel}, out);
}

// From the specs of a call that passed infer; `out` of the axes comes from y.
ConvGeometry WithOutput(ConvGeometry g, const Shape& y) {
  g.h.out = y[2];
  g.w.out = y[3];
  return g;
}
ConvGeometry ForwardGeometry(const OpCall& call) {
  return WithOutput(ForwardGeometry(call.in[0].shape, call.in[1].shape, call.As<Conv2dAttrs>()),
                    call.out[0].shape);
}
ConvGeometry InputGradGeometry(const OpCall& call) {
  return WithOutput(InputGradGeometry(call.in[0].shape, call.in[1].shape, call.As<Conv2dAttrs>()),
                    call.in[0].shape);
}
ConvGeometry WeightGradGeometry(const OpCall& call) {
  return WithOutput(WeightGradGeometry(call.in[0].shape, call.in[1].shape, call.As<Conv2dAttrs>()),
                    call.in[0].shape);
}

// Each element of y has so many taps, in the gradients too.
Cost PriceTaps(const TensorSpec& y, const ConvGeometry& g) {
  return {.matmul = Count{kFlopsPerFma} * y.numel() * g.taps()};
}
Cost PriceForward(const OpCall& call) {
  Cost cost = PriceTaps(call.out[0], ForwardGeometry(call));
  if (call.in.size() == 3) cost.other = call.out[0].numel();
  return cost;
}
Cost PriceInputGrad(const OpCall& call) { return PriceTaps(call.in[0], InputGradGeometry(call)); }
Cost PriceWeightGrad(const OpCall& call) { return PriceTaps(call.in[0], WeightGradGeometry(call)); }

int64_t ScratchForward(const OpCall& call) {
  return ConvForwardScratch(ForwardGeometry(call), call.in[0].dtype);
}
int64_t ScratchInputGrad(const OpCall& call) {
  return ConvInputGradScratch(InputGradGeometry(call), call.in[0].dtype);
}
int64_t ScratchWeightGrad(const OpCall& call) {
  return ConvWeightGradScratch(WeightGradGeometry(call), call.in[0].dtype);
}

// Both devices are called alike.
using ConvRun = absl::Status (*)(const ConvGeometry& g, const ConvOperands& o);

template <ConvRun run>
absl::Status RunForward(const KernelArgs& k) {
  const Tensor &x = *k.in[0], &w = *k.in[1], &y = k.out[0];
  return run(WithOutput(ForwardGeometry(x.shape(), w.shape(), k.As<Conv2dAttrs>()), y.shape()),
             {.dtype = y.dtype(),
              .x = x.raw(),
              .w = w.raw(),
              .y = y.raw(),
              .bias = k.in.size() == 3 ? k.in[2]->raw() : nullptr,
              .device = y.device(),
              .scratch = k.scratch});
}
template <ConvRun run>
absl::Status RunInputGrad(const KernelArgs& k) {
  const Tensor &dy = *k.in[0], &w = *k.in[1], &dx = k.out[0];
  return run(WithOutput(InputGradGeometry(dy.shape(), w.shape(), k.As<Conv2dAttrs>()), dy.shape()),
             {.dtype = dy.dtype(),
              .x = dx.raw(),
              .w = w.raw(),
              .y = dy.raw(),
              .device = dy.device(),
              .scratch = k.scratch});
}
template <ConvRun run>
absl::Status RunWeightGrad(const KernelArgs& k) {
  const Tensor &dy = *k.in[0], &x = *k.in[1], &dw = k.out[0];
  return run(WithOutput(WeightGradGeometry(dy.shape(), x.shape(), k.As<Conv2dAttrs>()), dy.shape()),
             {.dtype = dy.dtype(),
              .x = x.raw(),
              .w = dw.raw(),
              .y = dy.raw(),
              .device = dy.device(),
              .scratch = k.scratch});
}

// ---- gradients: y = x * w is linear in each of the three, so each rule is one of the ops.

Tensor Forward(const Tensor& x, const Tensor& w, Conv2dAttrs a) {
  a.size_h = a.size_w = 0;
  return Apply(kConv2d, {x, w}, a);
}
Tensor InputGrad(const Tensor& dy, const Tensor& w, Conv2dAttrs a, const Shape& x) {
  a.size_h = x[2];
  a.size_w = x[3];
  return Apply(kConv2dInputGrad, {dy, w}, a);
}
Tensor WeightGrad(const Tensor& dy, const Tensor& x, Conv2dAttrs a, const Shape& w) {
  a.size_h = w[2];
  a.size_w = w[3];
  return Apply(kConv2dWeightGrad, {dy, x}, a);
}

Tensors ForwardX(const GradArgs& g) {
  return {InputGrad(g.dy(), g.in(1), g.As<Conv2dAttrs>(), g.in_spec(0).shape)};
}
Tensors ForwardW(const GradArgs& g) {
  return {WeightGrad(g.dy(), g.in(0), g.As<Conv2dAttrs>(), g.in_spec(1).shape)};
}
Tensors ForwardBias(const GradArgs& g) { return {Sum(g.dy(), {0, 2, 3})}; }

// Of dx = input_grad(dy, w), whose cotangent has the shape of x.
Tensors InputGradDy(const GradArgs& g) { return {Forward(g.dy(), g.in(1), g.As<Conv2dAttrs>())}; }
Tensors InputGradW(const GradArgs& g) {
  return {WeightGrad(g.in(0), g.dy(), g.As<Conv2dAttrs>(), g.in_spec(1).shape)};
}

// Of dw = weight_grad(dy, x), whose cotangent has the shape of w.
Tensors WeightGradDy(const GradArgs& g) { return {Forward(g.in(1), g.dy(), g.As<Conv2dAttrs>())}; }
Tensors WeightGradX(const GradArgs& g) {
  return {InputGrad(g.in(0), g.dy(), g.As<Conv2dAttrs>(), g.in_spec(1).shape)};
}

}  // namespace

const OpDef kConv2d = {
    .name = "conv2d",
    .attrs = Conv2dAttrs::Fields,
    .infer = InferForward,
    .cost = PriceForward,
    .scratch = ScratchForward,
    .kernel = {.cpu = RunForward<RunConvForward>, .cuda = RunForward<RunConvForwardOnGpu>},
    .grads = {{.of = {0}, .reads = In(1), .fn = ForwardX},
              {.of = {1}, .reads = In(0), .fn = ForwardW},
              {.of = {2}, .reads = kNothing, .fn = ForwardBias}},
};

const OpDef kConv2dInputGrad = {
    .name = "conv2d_input_grad",
    .attrs = Conv2dAttrs::GradFields,
    .infer = InferInputGrad,
    .cost = PriceInputGrad,
    .scratch = ScratchInputGrad,
    .kernel = {.cpu = RunInputGrad<RunConvInputGrad>, .cuda = RunInputGrad<RunConvInputGradOnGpu>},
    .grads = {{.of = {0}, .reads = In(1), .fn = InputGradDy},
              {.of = {1}, .reads = In(0), .fn = InputGradW}},
};

const OpDef kConv2dWeightGrad = {
    .name = "conv2d_weight_grad",
    .attrs = Conv2dAttrs::GradFields,
    .infer = InferWeightGrad,
    .cost = PriceWeightGrad,
    .scratch = ScratchWeightGrad,
    .kernel = {.cpu = RunWeightGrad<RunConvWeightGrad>,
               .cuda = RunWeightGrad<RunConvWeightGradOnGpu>},
    .grads = {{.of = {0}, .reads = In(1), .fn = WeightGradDy},
              {.of = {1}, .reads = In(0), .fn = WeightGradX}},
};

Tensor Conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& o) {
  const Conv2dAttrs attrs{.stride_h = o.stride[0],
                          .stride_w = o.stride[1],
                          .padding_h = o.padding[0],
                          .padding_w = o.padding[1],
                          .dilation_h = o.dilation[0],
                          .dilation_w = o.dilation[1],
                          .groups = o.groups};
  if (bias.defined()) return Apply(kConv2d, {x, w, bias}, attrs);
  return Apply(kConv2d, {x, w}, attrs);
}

Tensor Conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dOptions& o) {
  RequireDefined("conv1d", {x, w});
  if (x.rank() != 3 || w.rank() != 3) {
    ThrowInvalid(absl::StrCat("conv1d: wants x [N,C,L] and w [Co,C/groups,k]: x is ",
                              x.spec().ToString(), ", w is ", w.spec().ToString()));
  }
  const Tensor y = Conv2d(Unsqueeze(x, 2), Unsqueeze(w, 2), bias,
                          {.stride = {1, o.stride},
                           .padding = {0, o.padding},
                           .dilation = {1, o.dilation},
                           .groups = o.groups});
  return Squeeze(y, 2);
}

OpFamily ConvOps() {
  static const OpDef* const kOps[] = {&kConv2d, &kConv2dInputGrad, &kConv2dWeightGrad};
  return kOps;
}

}  // namespace tally
