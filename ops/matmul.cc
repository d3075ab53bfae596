// y = op(a) · op(b), either operand optionally transposed.
#include "tally/ops/matmul.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/product.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

// m×k times k_b×n; a vector is one row on the left and one column on the right.
struct Dims {
  int64_t m, k, k_b, n;
};

Dims DimsOf(const Shape& a, const Shape& b, const MatMulAttrs& t) {
  Dims d{1, a[-1], b[-1], 1};
  if (a.rank() > 1) {
    d.m = a[t.transpose_a ? -1 : -2];
    d.k = a[t.transpose_a ? -2 : -1];
  }
  if (b.rank() > 1) {
    d.k_b = b[t.transpose_b ? -1 : -2];
    d.n = b[t.transpose_b ? -2 : -1];
  }
  return d;
}

Shape BatchOf(const Shape& shape) {
  return Shape(shape.dims().first(std::max(shape.rank() - 2, 0)));
}

// "; they fit with transpose_b" for the first change of one flag that makes the inner dimensions
// equal, "" when there is none.
std::string WayOut(const Shape& a, const Shape& b, const MatMulAttrs& attrs) {
  const auto fit = [&](const MatMulAttrs& t) {
    const Dims d = DimsOf(a, b, t);
    return d.k == d.k_b;
  };
  const auto words = [](bool was, const char* flag) {
    return absl::StrCat("; they fit ", was ? "without " : "with ", flag);
  };
  MatMulAttrs changed = attrs;
  changed.transpose_b = !changed.transpose_b;
  if (b.rank() > 1 && fit(changed)) return words(attrs.transpose_b, "transpose_b");
  changed = attrs;
  changed.transpose_a = !changed.transpose_a;
  if (a.rank() > 1 && fit(changed)) return words(attrs.transpose_a, "transpose_a");
  return "";
}

absl::Status Invalid(const OpCall& call, const std::string& message) {
  return InvalidCall(call, message, "a b");
}

absl::Status CheckOperands(const OpCall& call) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  const TensorSpec &a = call.in[0], &b = call.in[1];
  const auto& t = call.As<MatMulAttrs>();
  if (a.dtype != b.dtype) return Invalid(call, "operands differ in dtype; cast one");
  if (!ComputesProducts(a.dtype)) return Invalid(call, "computes on f64, f32, bf16 and f16 only");
  if (a.rank() == 0 || b.rank() == 0) {
    return Invalid(call, "wants vectors or matrices; scale by a scalar with mul");
  }
  if (t.transpose_a && a.rank() == 1) return Invalid(call, "transpose_a of a vector");
  if (t.transpose_b && b.rank() == 1) return Invalid(call, "transpose_b of a vector");
  return absl::OkStatus();
}

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckOperands(call));
  const Shape &a = call.in[0].shape, &b = call.in[1].shape;
  const auto& t = call.As<MatMulAttrs>();
  const Dims d = DimsOf(a, b, t);
  if (d.k != d.k_b) {
    const absl::Status status = Invalid(call, "inner dimensions differ");
    return absl::Status(status.code(), absl::StrCat(status.message(), WayOut(a, b, t)));
  }
  const absl::StatusOr<Shape> batch = BroadcastShapes(BatchOf(a), BatchOf(b));
  if (!batch.ok()) return Invalid(call, "leading axes do not broadcast");
  absl::InlinedVector<int64_t, kMaxRank> dims(batch->dims().begin(), batch->dims().end());
  if (a.rank() > 1) dims.push_back(d.m);
  if (b.rank() > 1) dims.push_back(d.n);
  return SetShape(call, dims, out);
}

// Each element of y sums k products.
Cost Price(const OpCall& call) {
  const Dims d = DimsOf(call.in[0].shape, call.in[1].shape, call.As<MatMulAttrs>());
  return {.matmul = Count{kFlopsPerFma} * call.out[0].numel() * d.k};
}

absl::Status Kernel(const KernelArgs& args) {
  const auto& t = args.As<MatMulAttrs>();
  return RunProduct({.a = *args.in[0],
                     .transpose_a = t.transpose_a,
                     .b = *args.in[1],
                     .transpose_b = t.transpose_b,
                     .y = args.out[0]});
}

bool StridedOk(const Tensor& in, int, const Attrs&) { return ProductTakes(in); }

// The rules work on matrices: these give vectors their axis of size 1.
Tensor AsRows(const Tensor& a) { return a.rank() == 1 ? Unsqueeze(a, 0) : a; }
Tensor AsColumns(const Tensor& b) { return b.rank() == 1 ? Unsqueeze(b, 1) : b; }
Tensor CotangentAsMatrices(const GradArgs& g) {
  Tensor dy = g.dy();
  if (g.in_spec(1).rank() == 1) dy = Unsqueeze(dy, -1);
  if (g.in_spec(0).rank() == 1) dy = Unsqueeze(dy, -2);
  return dy;
}

// da = dy · op(b)ᵀ, transposed when `a` was.
Tensors GradA(const GradArgs& g) {
  const auto& t = g.As<MatMulAttrs>();
  const Tensor b = AsColumns(g.in(1)), dy = CotangentAsMatrices(g);
  const Tensor da = t.transpose_a ? MatMul(b, dy, {.a = t.transpose_b, .b = true})
                                  : MatMul(dy, b, {.a = false, .b = !t.transpose_b});
  return {g.in_spec(0).rank() == 1 ? Squeeze(da, -2) : da};
}

// db = op(a)ᵀ · dy, transposed when `b` was. Where `b` is one matrix for all leading axes of `a`,
// these are rows of one product.
Tensors GradB(const GradArgs& g) {
  const auto& t = g.As<MatMulAttrs>();
  Tensor a = AsRows(g.in(0)), dy = CotangentAsMatrices(g);
  bool transpose_a = t.transpose_a;
  if (g.in_spec(1).rank() <= 2 && a.rank() > 2) {
    a = FoldRows(transpose_a ? Transpose(a, -1, -2) : a);
    dy = FoldRows(dy);
    transpose_a = false;
  }
  const Tensor db = t.transpose_b ? MatMul(dy, a, {.a = true, .b = transpose_a})
                                  : MatMul(a, dy, {.a = !transpose_a, .b = false});
  return {g.in_spec(1).rank() == 1 ? Squeeze(db, -1) : db};
}

}  // namespace

absl::Span<const AttrField> MatMulAttrs::Fields() {
  static constexpr AttrField fields[] = {TALLY_ATTR(MatMulAttrs, transpose_a),
                                         TALLY_ATTR(MatMulAttrs, transpose_b)};
  return fields;
}

const OpDef kMatMul = {
    .name = "matmul",
    .attrs = MatMulAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Kernel, .cuda = Kernel},
    .strided = {0, 1},
    .strided_ok = StridedOk,
    .grads = {{.of = {0}, .reads = In(1), .fn = GradA}, {.of = {1}, .reads = In(0), .fn = GradB}},
};

OpFamily MatMulOps() {
  static const OpDef* const ops[] = {&kMatMul};
  return ops;
}

Tensor MatMul(const Tensor& a, const Tensor& b, MatMulTranspose transpose) {
  return Apply(kMatMul, {a, b}, MatMulAttrs{transpose.a, transpose.b});
}

}  // namespace tally
