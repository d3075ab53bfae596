#include "tally/ops/grouped_matmul.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/grouped_matmul_gpu.h"
#include "tally/ops/product.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> GroupedMatMulAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(GroupedMatMulAttrs, transpose_w)};
  return kFields;
}

namespace {

constexpr char kNames[] = "x w offsets";
constexpr char kGradNames[] = "a b offsets";

absl::Status CheckOperands(const OpCall& call, const char* names) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  if (call.in[0].dtype != call.in[1].dtype) {
    return InvalidCall(call, "operands differ in dtype; cast one", names);
  }
  if (!ComputesProducts(call.in[0].dtype)) {
    return InvalidCall(call, "computes on f64, f32, bf16 and f16 only", names);
  }
  const TensorSpec& offsets = call.in[2];
  if (offsets.dtype != DType::kI64 || offsets.rank() != 1 || offsets.shape[0] < 1) {
    return InvalidCall(call, "offsets must be i64 with one more entry than there are groups",
                       names);
  }
  return absl::OkStatus();
}

// ---- the rows of the groups

absl::Status CheckOffsets(const Tensor& offsets, int64_t rows) {
  const int64_t* const at = offsets.data<int64_t>();
  const int64_t last = offsets.numel() - 1;
  const auto wrong = [&](int64_t e, const std::string& where) {
    return absl::OutOfRangeError(absl::StrCat("offsets[", e, "] is ", at[e], where,
                                              ": offsets must ascend from 0 to the ", rows,
                                              " rows"));
  };
  if (at[0] != 0) return wrong(0, "");
  for (int64_t e = 1; e <= last; ++e) {
    if (at[e] < at[e - 1]) return wrong(e, absl::StrCat(" after ", at[e - 1]));
  }
  return at[last] == rows ? absl::OkStatus() : wrong(last, "");
}

// A matrix over the storage of `x`, `step` elements into it. One without elements lies nowhere.
Tensor Part(const Tensor& x, const Shape& shape, const Strides& strides, int64_t step) {
  return x.Alias({x.dtype(), shape}, strides, x.offset() + (shape.numel() == 0 ? 0 : step));
}

// Rows [begin, end) of a matrix.
Tensor RowsOf(const Tensor& x, int64_t begin, int64_t end) {
  return Part(x, {end - begin, x.dim(1)}, x.strides(), begin * x.strides()[0]);
}

// Matrix e of a stack.
Tensor MatrixOf(const Tensor& w, int64_t e) {
  Strides strides{};
  strides[0] = w.strides()[1];
  strides[1] = w.strides()[2];
  return Part(w, {w.dim(1), w.dim(2)}, strides, e * w.strides()[0]);
}

// The product of one group.
struct Group {
  Tensor a, b, y;
  double size;  // multiply-adds
};
using Groups = std::vector<Group>;

struct Transposes {
  bool a = false, b = false;
};

// Products below this many multiply-adds leave the threads of a GEMM library idle.
constexpr double kSmallProduct = 1 << 25;
// Parts for each thread that are enough to share out evenly.
constexpr double kPartsPerThread = 8;

// Large products run one by one on all threads, then the others side by side on one thread each: no
// thread waits long for the last of them.
absl::Status RunGroups(const Groups& groups, Transposes transposes) {
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  double total = 0;
  for (const Group& group : groups) total += group.size;
  const double large = std::max(kSmallProduct, total / (kPartsPerThread * threads));
  const auto run = [&](const Group& group) {
    return RunProduct({.a = group.a,
                       .transpose_a = transposes.a,
                       .b = group.b,
                       .transpose_b = transposes.b,
                       .y = group.y});
  };
  std::vector<const Group*> others;
  for (const Group& group : groups) {
    if (threads == 1 || group.size > large) {
      TALLY_RETURN_IF_ERROR(run(group));
    } else {
      others.push_back(&group);
    }
  }
  std::vector<absl::Status> statuses(others.size());
  const auto count = static_cast<int64_t>(others.size());
#pragma omp parallel for schedule(dynamic, 1) if (count > 1)
  for (int64_t i = 0; i < count; ++i) statuses[i] = run(*others[i]);
  for (const absl::Status& status : statuses) TALLY_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// ---- grouped_matmul

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckOperands(call, kNames));
  const Shape &x = call.in[0].shape, &w = call.in[1].shape;
  const int64_t groups = call.in[2].shape[0] - 1;
  if (x.rank() != 2) return InvalidCall(call, "x must be rows: [R,d]", kNames);
  if (w.rank() != 3) return InvalidCall(call, "w must be a stack of matrices: [E,d,f]", kNames);
  if (w[0] != groups) {
    return InvalidCall(call, absl::StrCat("offsets must have ", w[0], " + 1 entries"), kNames);
  }
  const bool transposed = call.As<GroupedMatMulAttrs>().transpose_w;
  const int64_t inner = w[transposed ? 2 : 1], width = w[transposed ? 1 : 2];
  if (x[1] != inner) {
    const std::string way_out = x[1] != width ? ""
                                : transposed  ? "; they fit without transpose_w"
                                              : "; they fit with transpose_w";
    const absl::Status status =
        InvalidCall(call, "the rows of x are not as long as the matrices want", kNames);
    return absl::Status(status.code(), absl::StrCat(status.message(), way_out));
  }
  return SetShape(call, {x[0], width}, out);
}

Cost Price(const OpCall& call) {
  return {.matmul = Count{kFlopsPerFma} * call.out[0].numel() * call.in[0].shape[1]};
}

// Each row meets one of the E matrices. (Without any there are no rows.)
int64_t Experts(const OpCall& call) { return std::max<int64_t>(call.in[1].shape[0], 1); }

absl::Status Run(const KernelArgs& k) {
  const Tensor &x = *k.in[0], &w = *k.in[1], &y = k.out[0];
  TALLY_RETURN_IF_ERROR(CheckOffsets(*k.in[2], x.dim(0)));
  const int64_t* const at = k.In<int64_t>(2);
  Groups groups;
  for (int64_t e = 0; e < w.dim(0); ++e) {
    const int64_t rows = at[e + 1] - at[e];
    if (rows == 0) continue;
    groups.push_back({RowsOf(x, at[e], at[e + 1]), MatrixOf(w, e), RowsOf(y, at[e], at[e + 1]),
                      static_cast<double>(rows) * x.dim(1) * y.dim(1)});
  }
  return RunGroups(groups, {.b = k.As<GroupedMatMulAttrs>().transpose_w});
}

// Strides of a matrix as kernels want them, one of them 1: that of an axis of one element means
// nothing, and need not be.
struct MatrixStrides {
  int64_t row, column;
  explicit MatrixStrides(const Tensor& x)
      : row(x.strides()[x.rank() - 2]), column(x.strides()[x.rank() - 1]) {
    if (row != 1 && column != 1) (x.dim(x.rank() - 1) <= 1 ? column : row) = 1;
  }
};

internal::GpuGroups OverGpu(const KernelArgs& k) {
  const Tensor &a = *k.in[0], &b = *k.in[1], &offsets = *k.in[2];
  const MatrixStrides of_a(a), of_b(b);
  return {.dtype = a.dtype(),
          .offsets = offsets.data<int64_t>(),
          .groups = offsets.numel() - 1,
          .rows = a.dim(0),
          .a = a.raw(),
          .a_row = of_a.row,
          .a_column = of_a.column,
          .b = b.raw(),
          .b_group = b.strides()[0],
          .b_row = of_b.row,
          .b_column = of_b.column,
          .p = a.dim(1),
          .q = k.out[0].shape()[-1],
          .y = k.out[0].raw()};
}

absl::Status GroupedMatMulOnGpu(const KernelArgs& k) {
  internal::GpuGroups g = OverGpu(k);
  if (k.As<GroupedMatMulAttrs>().transpose_w) std::swap(g.b_row, g.b_column);
  return OnGpu(k.out[0].device(), "grouped_matmul",
               [&](const GpuCall& call) { return internal::LaunchGroupedProduct(call, g); });
}

bool StridedOk(const Tensor& in, int, const Attrs&) { return ProductTakes(in); }

// dx = dy · op(w)ᵀ
Tensors GradX(const GradArgs& g) {
  return {GroupedMatMul(g.dy(), g.in(1), g.in(2), !g.As<GroupedMatMulAttrs>().transpose_w)};
}

// dw[e] = x_eᵀ · dy_e, transposed when w is.
Tensors GradW(const GradArgs& g) {
  return {g.As<GroupedMatMulAttrs>().transpose_w
              ? GroupedMatMulWeightGrad(g.dy(), g.in(0), g.in(2))
              : GroupedMatMulWeightGrad(g.in(0), g.dy(), g.in(2))};
}

// ---- grouped_matmul_weight_grad

absl::Status InferWeightGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckOperands(call, kGradNames));
  const Shape &a = call.in[0].shape, &b = call.in[1].shape;
  if (a.rank() != 2 || b.rank() != 2 || a[0] != b[0]) {
    return InvalidCall(call, "a and b must be as many rows: [R,p] and [R,q]", kGradNames);
  }
  return SetShape(call, {call.in[2].shape[0] - 1, a[1], b[1]}, out);
}

Cost PriceWeightGrad(const OpCall& call) {
  return {.matmul = Count{kFlopsPerFma} * call.in[0].numel() * call.in[1].shape[1]};
}

absl::Status RunWeightGrad(const KernelArgs& k) {
  const Tensor &a = *k.in[0], &b = *k.in[1], &y = k.out[0];
  TALLY_RETURN_IF_ERROR(CheckOffsets(*k.in[2], a.dim(0)));
  const int64_t* const at = k.In<int64_t>(2);
  const int64_t bytes = y.dim(1) * y.dim(2) * ItemSize(y.dtype());
  Groups groups;
  for (int64_t e = 0; e < y.dim(0); ++e) {
    const int64_t rows = at[e + 1] - at[e];
    if (rows == 0) {
      if (bytes > 0) std::memset(static_cast<char*>(y.raw()) + e * bytes, 0, bytes);
      continue;
    }
    groups.push_back({RowsOf(a, at[e], at[e + 1]), RowsOf(b, at[e], at[e + 1]), MatrixOf(y, e),
                      static_cast<double>(rows) * y.dim(1) * y.dim(2)});
  }
  return RunGroups(groups, {.a = true});
}

absl::Status WeightGradOnGpu(const KernelArgs& k) {
  return OnGpu(k.out[0].device(), "grouped_matmul_weight_grad",
               [&](const GpuCall& call) { return internal::LaunchGroupedOuter(call, OverGpu(k)); });
}

// With D the cotangent: da_e = b_e · D[e]ᵀ, db_e = a_e · D[e].
Tensors GradOfA(const GradArgs& g) { return {GroupedMatMul(g.in(1), g.dy(), g.in(2), true)}; }
Tensors GradOfB(const GradArgs& g) { return {GroupedMatMul(g.in(0), g.dy(), g.in(2))}; }

}  // namespace

constinit const OpDef kGroupedMatMul = {
    .name = "grouped_matmul",
    .attrs = GroupedMatMulAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .groups = Experts,
    .kernel = {.cpu = Run, .cuda = GroupedMatMulOnGpu},
    .strided = {0, 1},
    .strided_ok = StridedOk,
    .grads = {{.of = {0}, .reads = In(1) | In(2), .fn = GradX},
              {.of = {1}, .reads = In(0) | In(2), .fn = GradW}},
    .no_gradient = {2},
};

constinit const OpDef kGroupedMatMulWeightGrad = {
    .name = "grouped_matmul_weight_grad",
    .infer = InferWeightGrad,
    .cost = PriceWeightGrad,
    .kernel = {.cpu = RunWeightGrad, .cuda = WeightGradOnGpu},
    .strided = {0, 1},
    .strided_ok = StridedOk,
    .grads = {{.of = {0}, .reads = In(1) | In(2), .fn = GradOfA},
              {.of = {1}, .reads = In(0) | In(2), .fn = GradOfB}},
    .no_gradient = {2},
};

Tensor GroupedMatMul(const Tensor& x, const Tensor& w, const Tensor& offsets, bool transpose_w) {
  return Apply(kGroupedMatMul, {x, w, offsets}, GroupedMatMulAttrs{transpose_w});
}
Tensor GroupedMatMulWeightGrad(const Tensor& a, const Tensor& b, const Tensor& offsets) {
  return Apply(kGroupedMatMulWeightGrad, {a, b, offsets});
}

OpFamily GroupedMatMulOps() {
  static const OpDef* const kOps[] = {&kGroupedMatMul, &kGroupedMatMulWeightGrad};
  return kOps;
}

}  // namespace tally
