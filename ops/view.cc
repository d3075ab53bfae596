#include "tally/ops/view.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"

namespace tally {

absl::Span<const AttrField> ReshapeAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ReshapeAttrs, shape)};
  return kFields;
}
absl::Span<const AttrField> TransposeAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(TransposeAttrs, axis0),
                                          TALLY_ATTR(TransposeAttrs, axis1)};
  return kFields;
}
absl::Span<const AttrField> PermuteAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(PermuteAttrs, axes)};
  return kFields;
}
absl::Span<const AttrField> ExpandAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ExpandAttrs, shape)};
  return kFields;
}
absl::Span<const AttrField> AxisAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(AxisAttrs, axis)};
  return kFields;
}
namespace {

std::string DimsText(const PackedDims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ",", dims[i]);
  return text + "]";
}

PackedDims Packed(const char* op, absl::Span<const int64_t> dims) {
  absl::StatusOr<PackedDims> packed = PackedDims::Pack(dims);
  if (!packed.ok()) ThrowInvalid(absl::StrCat(op, ": ", packed.status().message()));
  return *packed;
}

// ---- reshape

absl::Status InferReshape(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const PackedDims& wanted = call.As<ReshapeAttrs>().shape;
  const int64_t numel = call.in[0].numel();
  absl::InlinedVector<int64_t, kMaxRank> dims;
  int hole = -1;
  int64_t known = 1;
  bool overflow = false;
  for (int i = 0; i < wanted.size(); ++i) {
    dims.push_back(wanted[i]);
    if (wanted[i] >= 0) {
      overflow |= __builtin_mul_overflow(known, wanted[i], &known);
    } else if (hole >= 0) {
      return InvalidCall(call, absl::StrCat("two dims of -1 in ", DimsText(wanted)));
    } else {
      hole = i;
    }
  }
  if (hole >= 0 && known == 0) {
    return InvalidCall(call, absl::StrCat("-1 in ", DimsText(wanted), " could be any size"));
  }
  if (hole >= 0 && !overflow && numel % known == 0) {
    dims[hole] = numel / known;
    known = numel;
  }
  if (overflow || known != numel) {
    return InvalidCall(call, absl::StrCat(numel, " elements do not fill ", DimsText(wanted)));
  }
  return SetShape(call, dims, out);
}

// Strides over `in` that list its elements in the row-major order of `shape`. Axes of `in` are
// taken in runs that lie evenly in memory; each run must be filled by whole dims of `shape`.
bool ReshapeStrides(const Tensor& in, const Shape& shape, Strides& strides) {
  if (in.contiguous()) {
    strides = RowMajorStrides(shape);
    return true;
  }
  int to = shape.rank() - 1;
  int64_t run = 1;     // elements of the run so far
  int64_t step = 1;    // stride of its innermost axis
  int64_t filled = 1;  // elements of it covered by dims of `shape`
  bool open = false;   // a run has begun
  for (int from = in.rank() - 1; from >= -1; --from) {
    if (from >= 0 && in.dim(from) == 1) continue;
    if (from >= 0 && open && in.strides()[from] == step * run) {
      run *= in.dim(from);
      continue;
    }
    if (open) {
      while (to >= 0 && (filled < run || shape[to] == 1)) {
        strides[to] = step * filled;
        filled *= shape[to--];
      }
      if (filled != run) return false;
    }
    if (from >= 0) {
      run = in.dim(from);
      step = in.strides()[from];
      filled = 1;
      open = true;
    }
  }
  return true;
}

bool ViewReshape(const Tensor& in, const Attrs&, int, const TensorSpec& out, Strides& strides,
                 int64_t& offset) {
  strides = {};
  offset = in.offset();
  return ReshapeStrides(in, out.shape, strides);
}

Tensors GradReshape(const GradArgs& g) { return {Reshape(g.dy(), g.in_spec(0).shape)}; }

constexpr OpDef kReshape = {
    .name = "reshape",
    .kind = OpKind::kView,
    .attrs = ReshapeAttrs::Fields,
    .infer = InferReshape,
    .view = ViewReshape,
    .grads = {{.of = {0}, .fn = GradReshape}},
};

// ---- transpose, permute

absl::Status InferTranspose(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const auto& attrs = call.As<TransposeAttrs>();
  const Shape& shape = call.in[0].shape;
  int a, b;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, attrs.axis0, shape.rank(), &a));
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, attrs.axis1, shape.rank(), &b));
  absl::InlinedVector<int64_t, kMaxRank> dims(shape.dims().begin(), shape.dims().end());
  std::swap(dims[a], dims[b]);
  return SetShape(call, dims, out);
}

bool ViewTranspose(const Tensor& in, const Attrs& attrs, int, const TensorSpec&, Strides& strides,
                   int64_t& offset) {
  const auto& axes = attrs.As<TransposeAttrs>();
  strides = in.strides();
  std::swap(strides[FromFront(axes.axis0, in.rank())], strides[FromFront(axes.axis1, in.rank())]);
  offset = in.offset();
  return true;
}

Tensors GradTranspose(const GradArgs& g) {
  const auto& attrs = g.As<TransposeAttrs>();
  return {Transpose(g.dy(), attrs.axis0, attrs.axis1)};
}

constexpr OpDef kTranspose = {
    .name = "transpose",
    .kind = OpKind::kView,
    .attrs = TransposeAttrs::Fields,
    .infer = InferTranspose,
    .view = ViewTranspose,
    .grads = {{.of = {0}, .fn = GradTranspose}},
};

absl::Status InferPermute(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const Axes& axes = call.As<PermuteAttrs>().axes;
  const Shape& shape = call.in[0].shape;
  if (axes.size() != shape.rank()) {
    return InvalidCall(call, absl::StrCat("names ", axes.size(), " axes of ", shape.rank()));
  }
  absl::InlinedVector<int64_t, kMaxRank> dims;
  unsigned seen = 0;
  for (int i = 0; i < axes.size(); ++i) {
    int axis;
    TALLY_RETURN_IF_ERROR(ResolveAxis(call, axes[i], shape.rank(), &axis));
    if (seen >> axis & 1) return InvalidCall(call, absl::StrCat("names axis ", axis, " twice"));
    seen |= 1u << axis;
    dims.push_back(shape[axis]);
  }
  return SetShape(call, dims, out);
}

bool ViewPermute(const Tensor& in, const Attrs& attrs, int, const TensorSpec&, Strides& strides,
                 int64_t& offset) {
  const Axes& axes = attrs.As<PermuteAttrs>().axes;
  strides = {};
  for (int i = 0; i < axes.size(); ++i) strides[i] = in.strides()[FromFront(axes[i], in.rank())];
  offset = in.offset();
  return true;
}

Tensors GradPermute(const GradArgs& g) {
  const Axes& axes = g.As<PermuteAttrs>().axes;
  Axes inverse = axes;
  for (int i = 0; i < axes.size(); ++i) {
    inverse.axis[FromFront(axes[i], axes.size())] = static_cast<int8_t>(i);
  }
  return {Permute(g.dy(), inverse)};
}

constexpr OpDef kPermute = {
    .name = "permute",
    .kind = OpKind::kView,
    .attrs = PermuteAttrs::Fields,
    .infer = InferPermute,
    .view = ViewPermute,
    .grads = {{.of = {0}, .fn = GradPermute}},
};

// ---- expand, squeeze, unsqueeze

absl::Status InferExpand(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const PackedDims& wanted = call.As<ExpandAttrs>().shape;
  const Shape& shape = call.in[0].shape;
  const int added = wanted.size() - shape.rank();
  if (added < 0) {
    return InvalidCall(call, absl::StrCat("has more axes than ", DimsText(wanted)));
  }
  absl::InlinedVector<int64_t, kMaxRank> dims;
  for (int i = 0; i < wanted.size(); ++i) {
    dims.push_back(wanted[i]);
    const bool fits =
        wanted[i] >= 0 && (i < added || shape[i - added] == 1 || shape[i - added] == wanted[i]);
    if (!fits) {
      return InvalidCall(call,
                         absl::StrCat("does not broadcast to ", DimsText(wanted), " at axis ", i));
    }
  }
  return SetShape(call, dims, out);
}

bool ViewExpand(const Tensor& in, const Attrs&, int, const TensorSpec& out, Strides& strides,
                int64_t& offset) {
  const int added = out.rank() - in.rank();
  strides = {};
  for (int i = added; i < out.rank(); ++i) {
    if (in.dim(i - added) == out.shape[i]) strides[i] = in.strides()[i - added];
  }
  offset = in.offset();
  return true;
}

// The walk sums what was stretched.
Tensors GradExpand(const GradArgs& g) { return {g.dy()}; }

constexpr OpDef kExpand = {
    .name = "expand",
    .kind = OpKind::kView,
    .attrs = ExpandAttrs::Fields,
    .infer = InferExpand,
    .view = ViewExpand,
    .grads = {{.of = {0}, .fn = GradExpand}},
};

absl::Status InferSqueeze(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const Shape& shape = call.in[0].shape;
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, call.As<AxisAttrs>().axis, shape.rank(), &axis));
  if (shape[axis] != 1) {
    return InvalidCall(call, absl::StrCat("axis ", axis, " has size ", shape[axis], ", not 1"));
  }
  absl::InlinedVector<int64_t, kMaxRank> dims(shape.dims().begin(), shape.dims().end());
  dims.erase(dims.begin() + axis);
  return SetShape(call, dims, out);
}

bool ViewSqueeze(const Tensor& in, const Attrs& attrs, int, const TensorSpec&, Strides& strides,
                 int64_t& offset) {
  const int axis = FromFront(attrs.As<AxisAttrs>().axis, in.rank());
  strides = in.strides();
  std::copy(strides.begin() + axis + 1, strides.end(), strides.begin() + axis);
  strides.back() = 0;
  offset = in.offset();
  return true;
}

Tensors GradSqueeze(const GradArgs& g) {
  return {Unsqueeze(g.dy(), FromFront(g.As<AxisAttrs>().axis, g.in_spec(0).rank()))};
}

constexpr OpDef kSqueeze = {
    .name = "squeeze",
    .kind = OpKind::kView,
    .attrs = AxisAttrs::Fields,
    .infer = InferSqueeze,
    .view = ViewSqueeze,
    .grads = {{.of = {0}, .fn = GradSqueeze}},
};

absl::Status InferUnsqueeze(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const Shape& shape = call.in[0].shape;
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, call.As<AxisAttrs>().axis, shape.rank() + 1, &axis));
  absl::InlinedVector<int64_t, kMaxRank + 1> dims(shape.dims().begin(), shape.dims().end());
  dims.insert(dims.begin() + axis, 1);
  return SetShape(call, dims, out);
}

bool ViewUnsqueeze(const Tensor& in, const Attrs& attrs, int, const TensorSpec& out,
                   Strides& strides, int64_t& offset) {
  const int axis = FromFront(attrs.As<AxisAttrs>().axis, out.rank());
  strides = in.strides();
  std::copy_backward(strides.begin() + axis, strides.end() - 1, strides.end());
  // As if the new axis could be walked, which keeps a contiguous tensor's strides row-major.
  strides[axis] = axis + 1 < out.rank() ? strides[axis + 1] * out.shape[axis + 1] : 1;
  offset = in.offset();
  return true;
}

Tensors GradUnsqueeze(const GradArgs& g) {
  return {Squeeze(g.dy(), FromFront(g.As<AxisAttrs>().axis, g.out_spec().rank()))};
}

constexpr OpDef kUnsqueeze = {
    .name = "unsqueeze",
    .kind = OpKind::kView,
    .attrs = AxisAttrs::Fields,
    .infer = InferUnsqueeze,
    .view = ViewUnsqueeze,
    .grads = {{.of = {0}, .fn = GradUnsqueeze}},
};

constexpr const OpDef* kOps[] = {&kReshape, &kTranspose, &kPermute,
                                 &kExpand,  &kSqueeze,   &kUnsqueeze};

}  // namespace

OpFamily ViewOps() { return kOps; }

Tensor Reshape(const Tensor& x, absl::Span<const int64_t> dims) {
  return Apply(kReshape, {x}, ReshapeAttrs{Packed("reshape", dims)});
}
Tensor Reshape(const Tensor& x, std::initializer_list<int64_t> dims) {
  return Reshape(x, absl::MakeConstSpan(dims.begin(), dims.size()));
}
Tensor Reshape(const Tensor& x, const Shape& shape) { return Reshape(x, shape.dims()); }

Tensor Transpose(const Tensor& x, int axis0, int axis1) {
  return Apply(kTranspose, {x}, TransposeAttrs{axis0, axis1});
}

Tensor Permute(const Tensor& x, const Axes& axes) {
  return Apply(kPermute, {x}, PermuteAttrs{axes});
}

Tensor Expand(const Tensor& x, const Shape& shape) {
  return Apply(kExpand, {x}, ExpandAttrs{Packed("expand", shape.dims())});
}

Tensor Squeeze(const Tensor& x, int axis) { return Apply(kSqueeze, {x}, AxisAttrs{axis}); }

Tensor Unsqueeze(const Tensor& x, int axis) { return Apply(kUnsqueeze, {x}, AxisAttrs{axis}); }

}  // namespace tally
