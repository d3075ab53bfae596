// Slice, select and the gradient of both, which places a part among zeros.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/slice_gpu.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> SliceAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(SliceAttrs, axis), TALLY_ATTR(SliceAttrs, begin), TALLY_ATTR(SliceAttrs, end),
      TALLY_ATTR(SliceAttrs, step)};
  return kFields;
}
absl::Span<const AttrField> SliceGradAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(SliceGradAttrs, axis), TALLY_ATTR(SliceGradAttrs, begin),
      TALLY_ATTR(SliceGradAttrs, end), TALLY_ATTR(SliceGradAttrs, step),
      TALLY_ATTR(SliceGradAttrs, dim)};
  return kFields;
}
absl::Span<const AttrField> SelectAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(SelectAttrs, axis),
                                          TALLY_ATTR(SelectAttrs, index)};
  return kFields;
}

namespace {

// A slice with its bounds clamped into [0, dim].
struct Range {
  int64_t begin, end, step;
  int64_t count() const { return end <= begin ? 0 : (end - begin - 1) / step + 1; }
};

Range Clamp(int64_t begin, int64_t end, int64_t step, int64_t dim) {
  const auto clamp = [dim](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + dim : i, 0, dim); };
  return {clamp(begin), clamp(end), step};
}

Range Clamp(const SliceAttrs& a, int64_t dim) { return Clamp(a.begin, a.end, a.step, dim); }

absl::Status InferSlice(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const auto& attrs = call.As<SliceAttrs>();
  const Shape& shape = call.in[0].shape;
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, attrs.axis, shape.rank(), &axis));
  if (attrs.step < 1)
    return InvalidCall(call, absl::StrCat("step ", attrs.step, " is not above 0"));
  absl::InlinedVector<int64_t, kMaxRank> dims(shape.dims().begin(), shape.dims().end());
  dims[axis] = Clamp(attrs, dims[axis]).count();
  return SetShape(call, dims, out);
}

bool ViewSlice(const Tensor& in, const Attrs& attrs, int, const TensorSpec& out, Strides& strides,
               int64_t& offset) {
  const auto& a = attrs.As<SliceAttrs>();
  const int axis = FromFront(a.axis, in.rank());
  const Range range = Clamp(a, in.dim(axis));
  strides = in.strides();
  offset = in.offset();
  // An empty slice keeps the base's offset, so that it stays inside the storage. One element needs
  // no step, which may be too large to multiply.
  if (out.numel() > 0) offset += range.begin * strides[axis];
  if (out.shape[axis] > 1) strides[axis] *= range.step;
  return true;
}

Tensors GradSlice(const GradArgs& g) {
  const auto& a = g.As<SliceAttrs>();
  return {SliceGrad(g.dy(), a.axis, a.begin, a.end, a.step, g.in_spec(0).shape[a.axis])};
}

constexpr OpDef kSlice = {
    .name = "slice",
    .kind = OpKind::kView,
    .attrs = SliceAttrs::Fields,
    .infer = InferSlice,
    .view = ViewSlice,
    .grads = {{.of = {0}, .fn = GradSlice}},
};

absl::Status InferSelect(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const auto& attrs = call.As<SelectAttrs>();
  const Shape& shape = call.in[0].shape;
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, attrs.axis, shape.rank(), &axis));
  const int64_t dim = shape[axis];
  if (attrs.index < -dim || attrs.index >= dim) {
    return InvalidCall(
        call, absl::StrCat("index ", attrs.index, " is outside axis ", axis, " of size ", dim));
  }
  absl::InlinedVector<int64_t, kMaxRank> dims(shape.dims().begin(), shape.dims().end());
  dims.erase(dims.begin() + axis);
  return SetShape(call, dims, out);
}

bool ViewSelect(const Tensor& in, const Attrs& attrs, int, const TensorSpec& out, Strides& strides,
                int64_t& offset) {
  const auto& a = attrs.As<SelectAttrs>();
  const int axis = FromFront(a.axis, in.rank());
  strides = in.strides();
  std::copy(strides.begin() + axis + 1, strides.end(), strides.begin() + axis);
  strides.back() = 0;
  const int64_t index = a.index < 0 ? a.index + in.dim(axis) : a.index;
  offset = in.offset() + (out.numel() > 0 ? index * in.strides()[axis] : 0);
  return true;
}

Tensors GradSelect(const GradArgs& g) {
  const auto& a = g.As<SelectAttrs>();
  const int axis = FromFront(a.axis, g.in_spec(0).rank());
  const int64_t dim = g.in_spec(0).shape[axis];
  const int64_t index = a.index < 0 ? a.index + dim : a.index;
  return {SliceGrad(Unsqueeze(g.dy(), axis), axis, index, index + 1, 1, dim)};
}

constexpr OpDef kSelect = {
    .name = "select",
    .kind = OpKind::kView,
    .attrs = SelectAttrs::Fields,
    .infer = InferSelect,
    .view = ViewSelect,
    .grads = {{.of = {0}, .fn = GradSelect}},
};

// ---- slice_grad

Range Clamp(const SliceGradAttrs& a) { return Clamp(a.begin, a.end, a.step, a.dim); }

absl::Status InferSliceGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const auto& attrs = call.As<SliceGradAttrs>();
  const Shape& shape = call.in[0].shape;
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, attrs.axis, shape.rank(), &axis));
  if (attrs.step < 1 || attrs.dim < 0) {
    return InvalidCall(call,
                       absl::StrCat("step ", attrs.step, " or dim ", attrs.dim, " is too small"));
  }
  if (Clamp(attrs).count() != shape[axis]) {
    return InvalidCall(call,
                       absl::StrCat("axis ", axis, " does not have the ", Clamp(attrs).count(),
                                    " elements of the slice"),
                       "dy");
  }
  absl::InlinedVector<int64_t, kMaxRank> dims(shape.dims().begin(), shape.dims().end());
  dims[axis] = attrs.dim;
  return SetShape(call, dims, out);
}

// dy as [outer, count, inner] goes to y as [outer, dim, inner]; `inner` in bytes.
absl::Status KernelSliceGrad(const KernelArgs& k) {
  const auto& attrs = k.As<SliceGradAttrs>();
  const Tensor& dy = *k.in[0];
  const int axis = FromFront(attrs.axis, dy.rank());
  int64_t outer = 1, inner = ItemSize(dy.dtype());
  for (int i = 0; i < axis; ++i) outer *= dy.dim(i);
  for (int i = axis + 1; i < dy.rank(); ++i) inner *= dy.dim(i);
  const Range range = Clamp(attrs);
  const int64_t count = range.count(), row = attrs.dim * inner;
  const auto* from = static_cast<const char*>(dy.raw());
  auto* to = static_cast<char*>(k.out[0].raw());
  // Rows of neighbours move as one block.
  const int64_t blocks = range.step == 1 ? std::min<int64_t>(count, 1) : count;
  const int64_t block = range.step == 1 ? count * inner : inner;
#pragma omp parallel for if (outer * row > (int64_t{1} << 17))
  for (int64_t o = 0; o < outer; ++o) {
    char* const begin = to + o * row;
    char* end = begin;  // written so far
    for (int64_t b = 0; b < blocks; ++b) {
      char* const place = begin + (range.begin + b * range.step) * inner;
      std::memset(end, 0, place - end);
      std::memcpy(place, from + (o * count) * inner + b * block, block);
      end = place + block;
    }
    std::memset(end, 0, begin + row - end);
  }
  return absl::OkStatus();
}

absl::Status SliceGradOnGpu(const KernelArgs& k) {
  const auto& attrs = k.As<SliceGradAttrs>();
  const Tensor &dy = *k.in[0], &y = k.out[0];
  if (y.numel() == 0) return absl::OkStatus();
  const int axis = FromFront(attrs.axis, dy.rank());
  const Range range = Clamp(attrs);
  internal::GpuPlacing p{.item = ItemSize(y.dtype()),
                         .dim = attrs.dim,
                         .begin = range.begin,
                         .count = range.count(),
                         .step = range.step,
                         .x = dy.raw(),
                         .y = y.raw()};
  for (int i = 0; i < axis; ++i) p.outer *= y.dim(i);
  for (int i = axis + 1; i < y.rank(); ++i) p.inner *= y.dim(i);
  return OnGpu(y.device(), [&](const GpuCall& call) { return internal::LaunchPlacing(call, p); });
}

Cost NoFlops(const OpCall&) { return {}; }

Tensors GradSliceGrad(const GradArgs& g) {
  const auto& a = g.As<SliceGradAttrs>();
  return {Slice(g.dy(), a.axis, a.begin, a.end, a.step)};
}

constexpr OpDef kSliceGrad = {
    .name = "slice_grad",
    .attrs = SliceGradAttrs::Fields,
    .infer = InferSliceGrad,
    .cost = NoFlops,
    .kernel = {.cpu = KernelSliceGrad, .cuda = SliceGradOnGpu},
    .grads = {{.of = {0}, .fn = GradSliceGrad}},
};

constexpr const OpDef* kOps[] = {&kSlice, &kSelect, &kSliceGrad};

}  // namespace

OpFamily SliceOps() { return kOps; }

Tensor Slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  RequireDefined("slice", {x});
  SliceAttrs attrs{axis, begin, end, step};
  // Recorded as what is read, so that reports do not show a 63-bit "to the end".
  if (axis >= -x.rank() && axis < x.rank()) {
    const Range range = Clamp(attrs, x.shape()[axis]);
    attrs.begin = range.begin;
    attrs.end = range.end;
  }
  return Apply(kSlice, {x}, attrs);
}

Tensor Select(const Tensor& x, int axis, int64_t index) {
  return Apply(kSelect, {x}, SelectAttrs{axis, index});
}

Tensor SliceGrad(const Tensor& dy, int axis, int64_t begin, int64_t end, int64_t step,
                 int64_t dim) {
  return Apply(kSliceGrad, {dy}, SliceGradAttrs{axis, begin, end, step, dim});
}

}  // namespace tally
