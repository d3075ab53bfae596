#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/pool.h"
#include "tally/ops/pool_planes.h"
#include "tally/ops/rows.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> MaxPoolAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(MaxPoolAttrs, kernel_h),   TALLY_ATTR(MaxPoolAttrs, kernel_w),
      TALLY_ATTR(MaxPoolAttrs, stride_h),   TALLY_ATTR(MaxPoolAttrs, stride_w),
      TALLY_ATTR(MaxPoolAttrs, padding_h),  TALLY_ATTR(MaxPoolAttrs, padding_w),
      TALLY_ATTR(MaxPoolAttrs, dilation_h), TALLY_ATTR(MaxPoolAttrs, dilation_w)};
  return kFields;
}

absl::Span<const AttrField> PlaneAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(PlaneAttrs, size_h),
                                          TALLY_ATTR(PlaneAttrs, size_w)};
  return kFields;
}

namespace {

// ---- max_pool2d

PoolPlanes PlanesOf(const TensorSpec& x, const MaxPoolAttrs& a) {
  return {.dtype = x.dtype,
          .planes = x.shape[0] * x.shape[1],
          .h = {.in = x.shape[2],
                .kernel = a.kernel_h,
                .stride = a.stride_h,
                .padding = a.padding_h,
                .dilation = a.dilation_h},
          .w = {.in = x.shape[3],
                .kernel = a.kernel_w,
                .stride = a.stride_w,
                .padding = a.padding_w,
                .dilation = a.dilation_w}};
}

absl::Status InferMaxPool(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantPlanes(call));
  PoolPlanes p = PlanesOf(call.in[0], call.As<MaxPoolAttrs>());
  TALLY_RETURN_IF_ERROR(ResolvePool(call, "height", p.h));
  TALLY_RETURN_IF_ERROR(ResolvePool(call, "width", p.w));
  for (const WindowAxis& a : {p.h, p.w}) {
    if (a.padding > 0 && a.in < a.dilation) {
      return InvalidCall(call, absl::StrCat("with dilation ", a.dilation,
                                            " a window holds nothing but padding: x has ", a.in,
                                            " elements along that axis"));
    }
  }
  if (Count(p.h.kernel) * p.w.kernel > std::numeric_limits<int32_t>::max()) {
    return InvalidCall(call, "the kernel is too large");
  }
  const Shape& x = call.in[0].shape;
  TALLY_RETURN_IF_ERROR(SetShape(call, {x[0], x[1], p.h.out, p.w.out}, out));
  out.push_back({DType::kI64, out[0].shape});
  return absl::OkStatus();
}

Cost PriceMaxPool(const OpCall& call) {
  const auto& a = call.As<MaxPoolAttrs>();
  return {.other = Count(call.out[0].numel()) * (Count(a.kernel_h) * a.kernel_w - 1)};
}

absl::Status KernelMaxPool(const KernelArgs& k) {
  PoolPlanes p = PlanesOf(k.in[0]->spec(), k.As<MaxPoolAttrs>());
  p.h.out = k.out[0].dim(2);
  p.w.out = k.out[0].dim(3);
  if (k.out[0].numel() == 0) return absl::OkStatus();
  const Tensor &x = *k.in[0], &y = k.out[0];
  int64_t* const index = k.Out<int64_t>(1);
  if (y.device() == kCpu) return RunMaxPool(p, x.raw(), y.raw(), index), absl::OkStatus();
  return OnGpu(y.device(), [&](const GpuCall& call) {
    return internal::LaunchMaxPool(call, OnDevice(p, x.raw(), y.raw()), index);
  });
}

// ---- max_pool2d_grad and max_pool2d_pick

absl::Status CheckIndex(const OpCall& call, const char* names) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantPlanes(call));
  if (call.in[1].dtype != DType::kI64) return InvalidCall(call, "the index is i64", names);
  return absl::OkStatus();
}

absl::Status InferGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckIndex(call, "dy index"));
  const Shape& dy = call.in[0].shape;
  const auto& a = call.As<PlaneAttrs>();
  if (call.in[1].shape != dy) {
    return InvalidCall(call, "the index has dy's shape", "dy index");
  }
  // Scratch is at most 16 planes of f32.
  if (a.size_h < 0 || a.size_w < 0 || !FitsWindows({dy[0], dy[1], a.size_h, a.size_w})) {
    return InvalidCall(call, absl::StrCat("planes of ", a.size_h, "x", a.size_w), "dy index");
  }
  return SetShape(call, {dy[0], dy[1], a.size_h, a.size_w}, out);
}

absl::Status InferPick(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckIndex(call, "x index"));
  const Shape &x = call.in[0].shape, &index = call.in[1].shape;
  if (index.rank() != 4 || index[0] != x[0] || index[1] != x[1]) {
    return InvalidCall(call, "the index has x's first two dims", "x index");
  }
  out = {TensorSpec{call.in[0].dtype, index}};
  return absl::OkStatus();
}

Cost PriceGrad(const OpCall& call) { return {.other = call.in[0].numel()}; }
Cost PricePick(const OpCall&) { return {}; }

// Before anything is written.
absl::Status CheckRange(const Tensor& index, int64_t plane) {
  const int64_t* at = index.data<int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i) {
    if (at[i] < 0 || at[i] >= plane) {
      return absl::OutOfRangeError(absl::StrCat("index number ", i, " is ", at[i], ", outside [0, ",
                                                plane, "): index is ", index.spec().ToString()));
    }
  }
  return absl::OkStatus();
}

// Narrow floats add up in f32: planes are dealt to a fixed number of buffers.
constexpr int64_t kBuffers = 16;
int64_t ScratchGrad(const OpCall& call) {
  const TensorSpec& dx = call.out[0];
  if (ItemSize(dx.dtype) >= 4) return 0;
  return std::min(kBuffers, dx.shape[0] * dx.shape[1]) * dx.shape[2] * dx.shape[3] *
         int64_t{sizeof(float)};
}

template <typename T, typename C>
void AddAt(const T* dy, const int64_t* index, int64_t count, int64_t plane, C* dx) {
  std::fill(dx, dx + plane, C());
  for (int64_t i = 0; i < count; ++i) dx[index[i]] += Load(dy[i]);
}

absl::Status RunGrad(const KernelArgs& k) {
  const Tensor &dy = *k.in[0], &dx = k.out[0];
  const int64_t plane = dx.dim(2) * dx.dim(3), count = dy.dim(2) * dy.dim(3);
  const int64_t planes = dx.dim(0) * dx.dim(1);
  const int64_t* index = k.In<int64_t>(1);
  TALLY_RETURN_IF_ERROR(CheckRange(*k.in[1], plane));
  VisitFloat(dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = k.In<T>(0);
    T* to = k.Out<T>(0);
    if constexpr (sizeof(T) >= 4) {
      ForRows(planes, plane + count, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          AddAt(from + p * count, index + p * count, count, plane, to + p * plane);
        }
      });
    } else {
      const int64_t buffers = std::min(kBuffers, planes);
      ForRows(buffers, planes * (plane + count) / std::max<int64_t>(1, buffers),
              [&](int64_t begin, int64_t end) {
                for (int64_t b = begin; b < end; ++b) {
                  float* sum = static_cast<float*>(k.scratch) + b * plane;
                  for (int64_t p = b; p < planes; p += buffers) {
                    AddAt(from + p * count, index + p * count, count, plane, sum);
                    std::transform(sum, sum + plane, to + p * plane,
                                   [](float v) { return Store<T>(v); });
                  }
                }
              });
    }
  });
  return absl::OkStatus();
}

absl::Status RunPick(const KernelArgs& k) {
  const Tensor &x = *k.in[0], &y = k.out[0];
  const int64_t plane = x.dim(2) * x.dim(3), count = y.dim(2) * y.dim(3);
  const int64_t* index = k.In<int64_t>(1);
  TALLY_RETURN_IF_ERROR(CheckRange(*k.in[1], plane));
  VisitFloat(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = k.In<T>(0);
    T* to = k.Out<T>(0);
    ForRows(x.dim(0) * x.dim(1), count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * count; i < end * count; ++i) {
        to[i] = from[i / count * plane + index[i]];
      }
    });
  });
  return absl::OkStatus();
}

// `large` is x or dx, which the index is into, `small` y or dy.
internal::GpuPoolIndex IndexOnDevice(const KernelArgs& k, const Tensor& large,
                                     const Tensor& small) {
  return {.dtype = large.dtype(),
          .planes = large.dim(0) * large.dim(1),
          .plane = large.dim(2) * large.dim(3),
          .count = small.dim(2) * small.dim(3),
          .from = k.in[0]->raw(),
          .index = k.In<int64_t>(1),
          .to = k.out[0].raw(),
          .sums = static_cast<float*>(k.scratch),
          .buffers = kBuffers};
}

absl::Status RunGradOnGpu(const KernelArgs& k) {
  return OnGpu(k.out[0].device(), "max_pool2d_grad", [&](const GpuCall& call) {
    return internal::LaunchMaxPoolGrad(call, IndexOnDevice(k, k.out[0], *k.in[0]));
  });
}

absl::Status RunPickOnGpu(const KernelArgs& k) {
  return OnGpu(k.out[0].device(), "max_pool2d_pick", [&](const GpuCall& call) {
    return internal::LaunchMaxPoolPick(call, IndexOnDevice(k, *k.in[0], k.out[0]));
  });
}

// ---- gradients

Tensor ScatterBack(const Tensor& dy, const Tensor& index, const Shape& x) {
  return Apply(kMaxPool2dGrad, {dy, index}, PlaneAttrs{x[2], x[3]});
}

Tensors GradMaxPool(const GradArgs& g) {
  if (g.has_dy(1)) ThrowInvalid("max_pool2d: the index has no gradient");
  return {ScatterBack(g.dy(), g.out(1), g.in_spec(0).shape)};
}
Tensors GradOfGrad(const GradArgs& g) { return {Apply(kMaxPool2dPick, {g.dy(), g.in(1)})}; }
Tensors GradOfPick(const GradArgs& g) { return {ScatterBack(g.dy(), g.in(1), g.in_spec(0).shape)}; }

}  // namespace

constinit const OpDef kMaxPool2d = {
    .name = "max_pool2d",
    .attrs = MaxPoolAttrs::Fields,
    .infer = InferMaxPool,
    .cost = PriceMaxPool,
    .kernel = {.cpu = KernelMaxPool, .cuda = KernelMaxPool},
    .grads = {{.of = {0}, .reads = Out(1), .fn = GradMaxPool}},
};

constinit const OpDef kMaxPool2dGrad = {
    .name = "max_pool2d_grad",
    .attrs = PlaneAttrs::Fields,
    .infer = InferGrad,
    .cost = PriceGrad,
    .scratch = ScratchGrad,
    .kernel = {.cpu = RunGrad, .cuda = RunGradOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradOfGrad}},
    .no_gradient = {1},
};

constinit const OpDef kMaxPool2dPick = {
    .name = "max_pool2d_pick",
    .infer = InferPick,
    .cost = PricePick,
    .kernel = {.cpu = RunPick, .cuda = RunPickOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradOfPick}},
    .no_gradient = {1},
};

Pooled MaxPool2d(const Tensor& x, const MaxPool2dOptions& o) {
  const TensorArg in[] = {x};
  const Tensors out = ApplyAll(kMaxPool2d, in,
                               MaxPoolAttrs{.kernel_h = o.kernel[0],
                                            .kernel_w = o.kernel[1],
                                            .stride_h = StrideOr(o.stride[0], o.kernel[0]),
                                            .stride_w = StrideOr(o.stride[1], o.kernel[1]),
                                            .padding_h = o.padding[0],
                                            .padding_w = o.padding[1],
                                            .dilation_h = o.dilation[0],
                                            .dilation_w = o.dilation[1]});
  return {out[0], out[1]};
}

Pooled MaxPool1d(const Tensor& x, const MaxPool1dOptions& o) {
  const Pooled pooled = MaxPool2d(AsPlanes("max_pool1d", x), {.kernel = {1, o.kernel},
                                                              .stride = {1, o.stride},
                                                              .padding = {0, o.padding},
                                                              .dilation = {1, o.dilation}});
  return {Squeeze(pooled.y, 2), Squeeze(pooled.index, 2)};
}

OpFamily MaxPoolOps() {
  static const OpDef* const kOps[] = {&kMaxPool2d, &kMaxPool2dGrad, &kMaxPool2dPick};
  return kOps;
}

}  // namespace tally
