#include "tally/ops/axis_index.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/axis_index_gpu.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/index_checks.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> GatherAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(GatherAttrs, axis)};
  return kFields;
}
absl::Span<const AttrField> ScatterAddAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ScatterAddAttrs, shape),
                                          TALLY_ATTR(ScatterAddAttrs, axis)};
  return kFields;
}

namespace {

// The index as lines along the axis, neighbours side by side: a line has `length` steps of `width`
// positions. Position (i, j) of a line that begins at {index, data} stands at index + i·index_step
// + j, and means the element data + id·data_step + j.
class Lines {
 public:
  struct Part {
    int64_t index, data, width;
  };

  Lines(const Shape& index, const Shape& data, int axis) : length(index[axis]) {
    const Strides index_strides = RowMajorStrides(index), data_strides = RowMajorStrides(data);
    const int last = index.rank() - 1;
    index_step = index_strides[axis];
    data_step = data_strides[axis];
    if (axis != last) width_ = index[last];
    tiles_ = (width_ + kTile - 1) / kTile;
    for (int a = last - (axis != last); a >= 0; --a) {
      if (a == axis) continue;
      others_.push_back({index[a], index_strides[a], data_strides[a]});
      lines_ *= index[a];
    }
  }

  // fn(part) for parts of all lines, in parallel: no two parts share an element of the data.
  template <typename Fn>
  void ForEach(const Fn& fn) const {
    ForRows(lines_ * tiles_, length * std::min(width_, kTile), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        Part part = Begin(task / tiles_);
        const int64_t column = task % tiles_ * kTile;
        part.index += column;
        part.data += column;
        part.width = std::min(kTile, width_ - column);
        fn(part);
      }
    });
  }

  int64_t length, index_step = 0, data_step = 0;

 private:
  static constexpr int64_t kTile = 1024;
  struct Other {
    int64_t dim, index_stride, data_stride;
  };

  Part Begin(int64_t line) const {
    Part part{0, 0, 0};
    for (const Other& other : others_) {
      const int64_t at = line % other.dim;
      line /= other.dim;
      part.index += at * other.index_stride;
      part.data += at * other.data_stride;
    }
    return part;
  }

  int64_t width_ = 1, tiles_ = 1, lines_ = 1;
  absl::InlinedVector<Other, kMaxRank> others_;  // innermost first
};

// What both ops demand of the index: `data` is the shape it points into.
absl::Status CheckIndex(const OpCall& call, const Shape& data, int axis, const char* names) {
  const TensorSpec& index = call.in[1];
  if (!IsIndex(index.dtype)) return InvalidCall(call, "index must be i64 or i32", names);
  int resolved = 0;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, axis, data.rank(), &resolved));
  if (index.rank() != data.rank()) {
    return InvalidCall(
        call, absl::StrCat("index must have rank ", data.rank(), " as ", data.ToString()), names);
  }
  for (int a = 0; a < data.rank(); ++a) {
    if (a == resolved || index.shape[a] <= data[a]) continue;
    return InvalidCall(call,
                       absl::StrCat("index is longer than ", data.ToString(), " along axis ", a,
                                    ": only axis ", resolved, " may be"),
                       names);
  }
  return absl::OkStatus();
}

// Of input 1 into data of this shape.
internal::GpuAxisIndex OverGpu(const Tensor& index, const Shape& data, int axis) {
  static_assert(internal::GpuAxisIndex::kMaxAxes == kMaxRank);
  internal::GpuAxisIndex a{
      .ids = GpuIdsOf(index, 1), .rank = data.rank(), .axis = axis, .limit = data[axis]};
  const Strides index_strides = RowMajorStrides(index.shape()),
                data_strides = RowMajorStrides(data);
  for (int d = 0; d < a.rank; ++d) {
    a.dims[d] = index.dim(d);
    a.index_strides[d] = index_strides[d];
    a.data_strides[d] = data_strides[d];
  }
  return a;
}

// ---- gather

constexpr char kGatherNames[] = "x index";

absl::Status InferGather(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(
      CheckIndex(call, call.in[0].shape, call.As<GatherAttrs>().axis, kGatherNames));
  out = {{call.in[0].dtype, call.in[1].shape}};
  return absl::OkStatus();
}

Cost PriceGather(const OpCall&) { return {}; }

absl::Status RunGather(const KernelArgs& k) {
  const Tensor &x = *k.in[0], &index = *k.in[1];
  const int axis = FromFront(k.As<GatherAttrs>().axis, x.rank());
  TALLY_RETURN_IF_ERROR(CheckIndexes(index, x.dim(axis), "index"));
  const Lines lines(index.shape(), x.shape(), axis);
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = k.In<T>(0);
    T* const to = k.Out<T>(0);
    WithIndexes(index, [&](const auto* ids) {
      lines.ForEach([&](const Lines::Part& part) {
        for (int64_t i = 0; i < lines.length; ++i) {
          const int64_t at = part.index + i * lines.index_step;
          for (int64_t j = 0; j < part.width; ++j) {
            to[at + j] = from[part.data + ids[at + j] * lines.data_step + j];
          }
        }
      });
    });
  });
  return absl::OkStatus();
}

absl::Status GatherOnGpu(const KernelArgs& k) {
  const Tensor &x = *k.in[0], &index = *k.in[1];
  const int axis = FromFront(k.As<GatherAttrs>().axis, x.rank());
  return OnGpu(x.device(), "gather", [&](const GpuCall& call) {
    return internal::LaunchAxisGather(call, OverGpu(index, x.shape(), axis), ItemSize(x.dtype()),
                                      x.raw(), k.out[0].raw());
  });
}

Tensors GradGather(const GradArgs& g) {
  return {ScatterAdd(g.in_spec(0).shape, g.As<GatherAttrs>().axis, g.in(1), g.dy())};
}

// ---- scatter_add

constexpr char kScatterNames[] = "updates index x";

absl::Status ShapeOf(const OpCall& call, Shape* shape) {
  const PackedDims& packed = call.As<ScatterAddAttrs>().shape;
  absl::InlinedVector<int64_t, kMaxRank> dims;
  for (int a = 0; a < packed.size(); ++a) dims.push_back(packed[a]);
  absl::StatusOr<Shape> made = Shape::Make(dims);
  if (!made.ok()) return InvalidCall(call, std::string(made.status().message()), kScatterNames);
  *shape = *std::move(made);
  // The sums of narrow floats must have a size in bytes, whatever a file says.
  return CheckedBytes({DType::kF64, *shape}).status();
}

absl::Status InferScatter(const OpCall& call, Specs& out) {
  if (call.in.size() != 3) TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantFloat(call, kScatterNames));
  Shape shape;
  TALLY_RETURN_IF_ERROR(ShapeOf(call, &shape));
  TALLY_RETURN_IF_ERROR(CheckIndex(call, shape, call.As<ScatterAddAttrs>().axis, kScatterNames));
  const TensorSpec& updates = call.in[0];
  if (updates.shape != call.in[1].shape) {
    return InvalidCall(call, "updates must have the shape of index", kScatterNames);
  }
  const TensorSpec result{updates.dtype, shape};
  if (call.in.size() == 3 && call.in[2] != result) {
    return InvalidCall(call, absl::StrCat("x must be ", result.ToString()), kScatterNames);
  }
  out = {result};
  return absl::OkStatus();
}

Cost PriceScatter(const OpCall& call) { return {.other = call.in[0].numel()}; }

// Narrow floats are summed apart, in f32.
int64_t ScratchScatter(const OpCall& call) {
  const bool narrow = ItemSize(call.in[0].dtype) < ItemSize(DType::kF32);
  return narrow ? call.out[0].numel() * ItemSize(DType::kF32) : 0;
}

// sums = x, or zeros.
template <typename T>
void Begin(const T* x, int64_t n, ComputeType<T>* sums) {
  ForRows(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sums[i] = x == nullptr ? ComputeType<T>() : Load(x[i]);
  });
}

template <typename T, typename Id>
void AddAlong(const Lines& lines, const T* updates, const Id* ids, ComputeType<T>* sums) {
  lines.ForEach([&](const Lines::Part& part) {
    for (int64_t i = 0; i < lines.length; ++i) {
      const int64_t at = part.index + i * lines.index_step;
      for (int64_t j = 0; j < part.width; ++j) {
        sums[part.data + ids[at + j] * lines.data_step + j] += Load(updates[at + j]);
      }
    }
  });
}

absl::Status RunScatter(const KernelArgs& k) {
  const Tensor &updates = *k.in[0], &index = *k.in[1], &y = k.out[0];
  const int axis = FromFront(k.As<ScatterAddAttrs>().axis, y.rank());
  TALLY_RETURN_IF_ERROR(CheckIndexes(index, y.dim(axis), "index"));
  const Lines lines(index.shape(), y.shape(), axis);
  VisitFloat(updates.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    constexpr bool kInPlace = std::is_same_v<T, C>;
    T* const out = k.Out<T>(0);
    C* const sums = kInPlace ? reinterpret_cast<C*>(out) : static_cast<C*>(k.scratch);
    Begin(k.in.size() == 3 ? k.In<T>(2) : nullptr, y.numel(), sums);
    WithIndexes(index, [&](const auto* ids) { AddAlong(lines, k.In<T>(0), ids, sums); });
    if (kInPlace) return;
    ForRows(y.numel(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = Store<T>(sums[i]);
    });
  });
  return absl::OkStatus();
}

absl::Status ScatterOnGpu(const KernelArgs& k) {
  const Tensor &updates = *k.in[0], &index = *k.in[1], &y = k.out[0];
  const int axis = FromFront(k.As<ScatterAddAttrs>().axis, y.rank());
  return OnGpu(y.device(), "scatter_add", [&](const GpuCall& call) {
    return internal::LaunchAxisScatterAdd(call, OverGpu(index, y.shape(), axis), y.dtype(),
                                          updates.raw(),
                                          k.in.size() == 3 ? k.in[2]->raw() : nullptr, y.numel(),
                                          static_cast<float*>(k.scratch), y.raw());
  });
}

Tensors GradUpdates(const GradArgs& g) {
  return {Gather(g.dy(), g.As<ScatterAddAttrs>().axis, g.in(1))};
}
Tensors GradBase(const GradArgs& g) { return {g.dy()}; }

ScatterAddAttrs AttrsFor(const Shape& shape, int axis) {
  return {ValueOrThrow(PackedDims::Pack(shape.dims())), axis};
}

}  // namespace

constinit const OpDef kGather = {
    .name = "gather",
    .attrs = GatherAttrs::Fields,
    .infer = InferGather,
    .cost = PriceGather,
    .kernel = {.cpu = RunGather, .cuda = GatherOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradGather}},
    .no_gradient = {1},
};

constinit const OpDef kScatterAdd = {
    .name = "scatter_add",
    .attrs = ScatterAddAttrs::Fields,
    .infer = InferScatter,
    .cost = PriceScatter,
    .scratch = ScratchScatter,
    .kernel = {.cpu = RunScatter, .cuda = ScatterOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradUpdates},
              {.of = {2}, .reads = kNothing, .fn = GradBase}},
    .no_gradient = {1},
};

Tensor Gather(const Tensor& x, int axis, const Tensor& index) {
  return Apply(kGather, {x, index}, GatherAttrs{axis});
}
Tensor ScatterAdd(const Shape& shape, int axis, const Tensor& index, const Tensor& updates) {
  return Apply(kScatterAdd, {updates, index}, AttrsFor(shape, axis));
}
Tensor ScatterAdd(const Tensor& x, int axis, const Tensor& index, const Tensor& updates) {
  RequireDefined("scatter_add", {x});
  return Apply(kScatterAdd, {updates, index, x}, AttrsFor(x.shape(), axis));
}

OpFamily AxisIndexOps() {
  static const OpDef* const kOps[] = {&kGather, &kScatterAdd};
  return kOps;
}

}  // namespace tally
