#include "tally/ops/join.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/copy_launch.h"
#include "tally/ops/defined.h"
#include "tally/ops/view.h"

namespace tally {

absl::Span<const AttrField> CatAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(CatAttrs, axis)};
  return kFields;
}
absl::Span<const AttrField> SplitAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(SplitAttrs, sizes),
                                          TALLY_ATTR(SplitAttrs, axis)};
  return kFields;
}

namespace {

// ---- cat

absl::Status InferCat(const OpCall& call, Specs& out) {
  if (call.in.size() == 0) return absl::InvalidArgumentError("takes at least one input");
  const TensorSpec& first = call.in[0];
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, call.As<CatAttrs>().axis, first.rank(), &axis));
  absl::InlinedVector<int64_t, kMaxRank> dims(first.shape.dims().begin(), first.shape.dims().end());
  for (size_t i = 1; i < call.in.size(); ++i) {
    const TensorSpec& x = call.in[i];
    if (x.dtype != first.dtype) {
      return InvalidCall(call, absl::StrCat("input ", i, " differs in dtype from the first"));
    }
    if (x.rank() != first.rank()) {
      return InvalidCall(call, absl::StrCat("input ", i, " differs in rank from the first"));
    }
    for (int d = 0; d < x.rank(); ++d) {
      if (d != axis && x.shape[d] != first.shape[d]) {
        return InvalidCall(call, absl::StrCat("input ", i, " differs from the first at axis ", d,
                                              "; only axis ", axis, " may differ"));
      }
    }
    if (__builtin_add_overflow(dims[axis], x.shape[axis], &dims[axis])) {
      return InvalidCall(call, "the joined axis is too long");
    }
  }
  return SetShape(call, dims, out);
}

// copy(part of the output, input) for each input, whatever its strides: views of heads need no copy
// first.
template <typename Copy>
absl::Status CopyParts(const KernelArgs& k, const Copy& copy) {
  const Tensor& y = k.out[0];
  const int axis = FromFront(k.As<CatAttrs>().axis, y.rank());
  const Strides strides = RowMajorStrides(y.shape());
  int64_t offset = y.offset();
  for (const Tensor* x : k.in) {
    if (x->numel() > 0) TALLY_RETURN_IF_ERROR(copy(y.Alias(x->spec(), strides, offset), *x));
    offset += x->dim(axis) * strides[axis];
  }
  return absl::OkStatus();
}

absl::Status CatOnGpu(const KernelArgs& k) { return CopyParts(k, internal::CopyOnGpu); }

// The output is [outer, bytes of one index of the axes up to `axis`]; each input fills a band of
// columns.
absl::Status KernelCat(const KernelArgs& k) {
  const Tensor& y = k.out[0];
  const int axis = FromFront(k.As<CatAttrs>().axis, y.rank());
  for (const Tensor* x : k.in) {
    if (x->contiguous()) continue;
    return CopyParts(k, [](const Tensor& part, const Tensor& in) {
      internal::CopyElements(part, in);
      return absl::OkStatus();
    });
  }
  int64_t outer = 1, inner = ItemSize(y.dtype());
  for (int i = 0; i < axis; ++i) outer *= y.dim(i);
  for (int i = axis + 1; i < y.rank(); ++i) inner *= y.dim(i);
  const int64_t row = y.dim(axis) * inner;
  auto* const to = static_cast<char*>(y.raw());
  const auto copy_row = [&](int64_t o) {
    char* place = to + o * row;
    for (const Tensor* x : k.in) {
      const int64_t bytes = x->dim(axis) * inner;
      if (bytes > 0) std::memcpy(place, static_cast<const char*>(x->raw()) + o * bytes, bytes);
      place += bytes;
    }
  };
#pragma omp parallel for if (outer > 1 && outer * row > (int64_t{1} << 17))
  for (int64_t o = 0; o < outer; ++o) copy_row(o);
  return absl::OkStatus();
}

Cost NoFlops(const OpCall&) { return {}; }

Tensors GradCat(const GradArgs& g) {
  const int axis = FromFront(g.As<CatAttrs>().axis, g.out_spec().rank());
  Tensors dx;
  int64_t begin = 0;
  for (int i = 0; i < g.num_inputs(); ++i) {
    const int64_t end = begin + g.in_spec(i).shape[axis];
    dx.push_back(g.needs(i) ? Slice(g.dy(), axis, begin, end) : Tensor());
    begin = end;
  }
  return dx;
}

constexpr OpDef kCat = {
    .name = "cat",
    .attrs = CatAttrs::Fields,
    .infer = InferCat,
    .cost = NoFlops,
    .kernel = {.cpu = KernelCat, .cuda = CatOnGpu},
    .strided = OperandSet::Every(),
    .grads = {{.of = OperandSet::Every(), .fn = GradCat}},
};

// ---- split

absl::Status InferSplit(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const auto& attrs = call.As<SplitAttrs>();
  const TensorSpec& x = call.in[0];
  int axis;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, attrs.axis, x.rank(), &axis));
  if (attrs.sizes.size() == 0) return InvalidCall(call, "no sizes");
  int64_t left = x.shape[axis];
  out.clear();
  for (int i = 0; i < attrs.sizes.size(); ++i) {
    const int64_t size = attrs.sizes[i];
    if (size < 0 || size > left) {
      return InvalidCall(call, absl::StrCat("part ", i, " of size ", size, " does not fit the ",
                                            left, " left of axis ", axis));
    }
    left -= size;
    out.push_back({x.dtype, x.shape.With(axis, size)});
  }
  if (left > 0) {
    return InvalidCall(call, absl::StrCat("the sizes leave ", left, " of axis ", axis, " over"));
  }
  return absl::OkStatus();
}

bool ViewSplit(const Tensor& in, const Attrs& attrs, int index, const TensorSpec& out,
               Strides& strides, int64_t& offset) {
  const auto& a = attrs.As<SplitAttrs>();
  strides = in.strides();
  offset = in.offset();
  if (out.numel() == 0) return true;
  for (int i = 0; i < index; ++i) offset += a.sizes[i] * strides[FromFront(a.axis, in.rank())];
  return true;
}

// One concatenation. Parts nobody used are zero.
Tensors GradSplit(const GradArgs& g) {
  const auto& a = g.As<SplitAttrs>();
  const int parts = a.sizes.size();
  const Device device = [&] {
    int i = 0;
    while (!g.has_dy(i)) ++i;  // a node without any cotangent is not visited
    return g.dy(i).device();
  }();
  std::vector<Tensor> dy;
  for (int i = 0; i < parts; ++i) {
    dy.push_back(g.has_dy(i) ? g.dy(i) : Fill(g.out_spec(i), 0, device));
  }
  return {Cat(dy, a.axis)};
}

constexpr OpDef kSplit = {
    .name = "split",
    .kind = OpKind::kView,
    .attrs = SplitAttrs::Fields,
    .infer = InferSplit,
    .view = ViewSplit,
    .grads = {{.of = {0}, .fn = GradSplit}},
};

constexpr const OpDef* kOps[] = {&kCat, &kSplit};

TensorArgs ArgsOf(absl::Span<const Tensor> tensors) {
  return TensorArgs(tensors.begin(), tensors.end());
}

}  // namespace

OpFamily JoinOps() { return kOps; }

Tensor Cat(absl::Span<const Tensor> tensors, int axis) {
  if (tensors.empty()) ThrowInvalid("cat: takes at least one tensor");
  return ApplyAll(kCat, ArgsOf(tensors), CatAttrs{axis})[0];
}

Tensor Stack(absl::Span<const Tensor> tensors, int axis) {
  if (tensors.empty()) ThrowInvalid("stack: takes at least one tensor");
  std::vector<Tensor> parts;
  parts.reserve(tensors.size());
  for (const Tensor& x : tensors) {
    RequireDefined("stack", {tensors[0], x});
    if (x.spec() != tensors[0].spec()) {
      ThrowInvalid(absl::StrCat("stack: specs differ: ", tensors[0].spec().ToString(), " and ",
                                x.spec().ToString()));
    }
    parts.push_back(Unsqueeze(x, axis));
  }
  return Cat(parts, axis);
}

Tensors Split(const Tensor& x, absl::Span<const int64_t> sizes, int axis) {
  if (sizes.size() <= kMaxRank) {
    absl::StatusOr<PackedDims> packed = PackedDims::Pack(sizes);
    if (!packed.ok()) ThrowInvalid(absl::StrCat("split: ", packed.status().message()));
    const TensorArg arg(x);
    return ApplyAll(kSplit, absl::MakeConstSpan(&arg, 1), SplitAttrs{*packed, axis});
  }
  // More parts than one node holds: at most 8 groups, each split again.
  const size_t group = (sizes.size() + kMaxRank - 1) / kMaxRank;
  std::vector<int64_t> sums;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i % group == 0) sums.push_back(0);
    if (sizes[i] < 0 || __builtin_add_overflow(sums.back(), sizes[i], &sums.back())) {
      ThrowInvalid(
          absl::StrCat("split: part ", i, " has size ", sizes[i], ": x is ", x.spec().ToString()));
    }
  }
  const Tensors groups = Split(x, sums, axis);
  Tensors parts;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (Tensor& part : Split(groups[g], sizes.subspan(g * group, group), axis)) {
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

Tensors SplitEvenly(const Tensor& x, int64_t parts, int axis) {
  RequireDefined("split", {x});
  if (axis < -x.rank() || axis >= x.rank() || parts < 1 || x.shape()[axis] % parts != 0) {
    ThrowInvalid(absl::StrCat("split: ", parts, " equal parts of axis ", axis, ": x is ",
                              x.spec().ToString()));
  }
  return Split(x, std::vector<int64_t>(parts, x.shape()[axis] / parts), axis);
}

}  // namespace tally
