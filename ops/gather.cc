#include "tally/ops/gather.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/gather_gpu.h"
#include "tally/ops/index_checks.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> ScatterAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ScatterAttrs, rows)};
  return kFields;
}

namespace {

constexpr int64_t kGrainBytes = int64_t{1} << 17;

absl::Status CheckIds(const OpCall& call, const char* names) {
  if (IsIndex(call.in[1].dtype)) return absl::OkStatus();
  return InvalidCall(call, "ids must be i64 or i32", names);
}

// ---- gather_rows

constexpr char kGatherNames[] = "table ids";

absl::Status InferGather(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  const TensorSpec &table = call.in[0], &ids = call.in[1];
  if (table.rank() != 2) return InvalidCall(call, "the table must have rank 2", kGatherNames);
  TALLY_RETURN_IF_ERROR(CheckIds(call, kGatherNames));
  absl::InlinedVector<int64_t, kMaxRank + 1> dims(ids.shape.dims().begin(), ids.shape.dims().end());
  dims.push_back(table.shape[1]);
  return SetShape(call, dims, out);
}

absl::Status KernelGather(const KernelArgs& k) {
  const Tensor &table = *k.in[0], &ids = *k.in[1];
  const int64_t n = ids.numel();
  const int64_t row = table.dim(1) * ItemSize(table.dtype());
  const auto* const from = static_cast<const char*>(table.raw());
  auto* const to = static_cast<char*>(k.out[0].raw());
  TALLY_RETURN_IF_ERROR(CheckIndexes(ids, table.dim(0), "ids", "are"));
  if (row == 0) return absl::OkStatus();
  WithIndexes(ids, [&](const auto* id) {
#pragma omp parallel for if (n * row > kGrainBytes)
    for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * row, from + id[i] * row, row);
  });
  return absl::OkStatus();
}

absl::Status GatherOnGpu(const KernelArgs& k) {
  const Tensor &table = *k.in[0], &ids = *k.in[1], &y = k.out[0];
  const int64_t item = ItemSize(table.dtype());
  return OnGpu(y.device(), "gather_rows", [&](const GpuCall& call) {
    return internal::LaunchGatherRows(call, GpuIdsOf(ids, 1), table.raw(), table.dim(0),
                                      table.dim(1) * item, item, y.raw());
  });
}

Cost PriceGather(const OpCall&) { return {}; }

Tensors GradGather(const GradArgs& g) {
  return {ScatterAddRows(g.dy(), g.in(1), g.in_spec(0).shape[0])};
}

constexpr OpDef kGather = {
    .name = "gather_rows",
    .infer = InferGather,
    .cost = PriceGather,
    .kernel = {.cpu = KernelGather, .cuda = GatherOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradGather}},
    .no_gradient = {1},
};

// ---- scatter_add_rows

constexpr int64_t kMaxRows = int64_t{1} << 48;
constexpr char kScatterNames[] = "updates ids";

absl::Status InferScatter(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  const TensorSpec &updates = call.in[0], &ids = call.in[1];
  const int64_t rows = call.As<ScatterAttrs>().rows;
  if (!IsFloat(updates.dtype) || ItemSize(updates.dtype) < 2) {
    return InvalidCall(call, "adds f64, f32, bf16 or f16", kScatterNames);
  }
  TALLY_RETURN_IF_ERROR(CheckIds(call, kScatterNames));
  bool fits = updates.rank() == ids.rank() + 1;
  for (int i = 0; fits && i < ids.rank(); ++i) fits = updates.shape[i] == ids.shape[i];
  if (!fits) {
    return InvalidCall(call, "updates must have the shape of ids and one more axis", kScatterNames);
  }
  // Bounded so that the scratch bytes cannot overflow, whatever a file says.
  if (rows < 0 || rows > kMaxRows || ids.numel() > kMaxRows) {
    return InvalidCall(call, absl::StrCat("rows is ", rows, ", not in [0, 2^48]"), kScatterNames);
  }
  return SetShape(call, {rows, updates.shape[-1]}, out);
}

// The positions sorted by row, and where each row begins among them.
int64_t ScratchScatter(const OpCall& call) {
  return (call.in[1].numel() + call.As<ScatterAttrs>().rows + 1) * int64_t{sizeof(int64_t)};
}

// A stable counting sort: begin[r] .. begin[r + 1] are the places in `order` of the positions whose
// id is r, ascending.
template <typename Id>
void SortByRow(const Id* ids, int64_t n, int64_t rows, int64_t* begin, int64_t* order) {
  std::fill(begin, begin + rows + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++begin[ids[i]];
  // begin[r] becomes the end of row r; filling from the back moves it to the beginning.
  for (int64_t r = 0, sum = 0; r <= rows; ++r) begin[r] = sum += begin[r];
  for (int64_t i = n - 1; i >= 0; --i) order[--begin[ids[i]]] = i;
}

constexpr int64_t kColumns = 256;  // of one task: wide rows are shared among threads too

// Columns [column, column + width) of one output row.
template <typename T>
void AddRow(const T* updates, const int64_t* order, int64_t count, int64_t d, int64_t column,
            int64_t width, T* out) {
  ComputeType<T> sum[kColumns] = {};
  for (int64_t i = 0; i < count; ++i) {
    const T* const from = updates + order[i] * d + column;
    for (int64_t j = 0; j < width; ++j) sum[j] += Load(from[j]);
  }
  for (int64_t j = 0; j < width; ++j) out[j] = Store<T>(sum[j]);
}

template <typename T>
void ScatterAdd(const T* updates, const int64_t* begin, const int64_t* order, int64_t rows,
                int64_t d, T* out) {
  const int64_t bands = (d + kColumns - 1) / kColumns;
  const int64_t work = (begin[rows] + rows) * d * int64_t{sizeof(T)};
#pragma omp parallel for schedule(dynamic, 64) if (work > kGrainBytes)
  for (int64_t task = 0; task < rows * bands; ++task) {
    const int64_t row = task / bands, column = task % bands * kColumns;
    const int64_t width = std::min(kColumns, d - column);
    T* const to = out + row * d + column;
    if (begin[row] == begin[row + 1]) {
      std::memset(static_cast<void*>(to), 0, width * sizeof(T));
    } else {
      AddRow(updates, order + begin[row], begin[row + 1] - begin[row], d, column, width, to);
    }
  }
}

absl::Status KernelScatter(const KernelArgs& k) {
  const Tensor &updates = *k.in[0], &ids = *k.in[1];
  const int64_t rows = k.As<ScatterAttrs>().rows, n = ids.numel();
  auto* const begin = static_cast<int64_t*>(k.scratch);
  int64_t* const order = begin + rows + 1;
  TALLY_RETURN_IF_ERROR(CheckIndexes(ids, rows, "ids", "are"));
  WithIndexes(ids, [&](const auto* id) { SortByRow(id, n, rows, begin, order); });
  VisitFloat(updates.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ScatterAdd(k.In<T>(0), begin, order, rows, updates.shape()[-1], k.Out<T>(0));
  });
  return absl::OkStatus();
}

absl::Status ScatterOnGpu(const KernelArgs& k) {
  const Tensor &updates = *k.in[0], &ids = *k.in[1], &y = k.out[0];
  const int64_t rows = k.As<ScatterAttrs>().rows;
  auto* const begin = static_cast<int64_t*>(k.scratch);
  int64_t* const order = begin + rows + 1;
  return OnGpu(y.device(), "scatter_add_rows", [&](const GpuCall& call) {
    const GpuError error =
        internal::LaunchRowSort(call, GpuIdsOf(ids, 1), rows, begin, order, nullptr, 1);
    return error != 0 ? error
                      : internal::LaunchAddRows(call, updates.dtype(), updates.raw(), begin, order,
                                                rows, y.dim(1), y.raw());
  });
}

Cost PriceScatter(const OpCall& call) { return {.other = call.in[0].numel()}; }

Tensors GradScatter(const GradArgs& g) { return {GatherRows(g.dy(), g.in(1))}; }

constexpr OpDef kScatter = {
    .name = "scatter_add_rows",
    .attrs = ScatterAttrs::Fields,
    .infer = InferScatter,
    .cost = PriceScatter,
    .scratch = ScratchScatter,
    .kernel = {.cpu = KernelScatter, .cuda = ScatterOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradScatter}},
    .no_gradient = {1},
};

constexpr const OpDef* kOps[] = {&kGather, &kScatter};

}  // namespace

OpFamily GatherOps() { return kOps; }

Tensor GatherRows(const Tensor& table, const Tensor& ids) { return Apply(kGather, {table, ids}); }

Tensor ScatterAddRows(const Tensor& updates, const Tensor& ids, int64_t rows) {
  return Apply(kScatter, {updates, ids}, ScatterAttrs{rows});
}

}  // namespace tally
