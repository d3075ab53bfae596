// y = x · op(w) + bias.
#include "tally/ops/linear.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/matmul.h"
#include "tally/ops/product.h"
#include "tally/ops/reduce.h"

namespace tally {
namespace {

absl::Status Invalid(const OpCall& call, const std::string& message) {
  return InvalidCall(call, message, "x w bias");
}

absl::Status CheckOperands(const OpCall& call) {
  if (call.in.size() != 2 && call.in.size() != 3) {
    return Invalid(call, absl::StrCat("takes x, w and perhaps bias, got ", call.in.size(),
                                      call.in.size() == 1 ? " input" : " inputs"));
  }
  const TensorSpec& x = call.in[0];
  for (size_t i = 1; i < call.in.size(); ++i) {
    if (call.in[i].dtype != x.dtype) return Invalid(call, "operands differ in dtype; cast them");
  }
  if (!ComputesProducts(x.dtype)) return Invalid(call, "computes on f64, f32, bf16 and f16 only");
  if (x.rank() == 0) return Invalid(call, "x has no axis to multiply over");
  if (call.in[1].rank() != 2) return Invalid(call, "wants a matrix as w");
  return absl::OkStatus();
}

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckOperands(call));
  const Shape &x = call.in[0].shape, &w = call.in[1].shape;
  const bool transposed = call.As<LinearAttrs>().transpose_weight;
  const int64_t in_axis = transposed ? 1 : 0, width = w[1 - in_axis];
  if (x[-1] != w[in_axis]) {
    const absl::Status status = Invalid(call, "the last axis of x is not the width of w");
    if (x[-1] != width) return status;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; they fit ",
                                     transposed ? "without" : "with", " transpose_weight"));
  }
  if (call.in.size() == 3 && call.in[2].shape != Shape{width}) {
    return Invalid(call, absl::StrCat("bias must have shape [", width, "]"));
  }
  absl::InlinedVector<int64_t, kMaxRank> dims(x.dims().begin(), x.dims().end());
  dims.back() = width;
  return SetShape(call, dims, out);
}

// Each element of y sums `in` products, and one bias.
Cost Price(const OpCall& call) {
  const Count elements = call.out[0].numel();
  return {.matmul = kFlopsPerFma * elements * call.in[0].shape[-1],
          .other = call.in.size() == 3 ? elements : 0};
}

absl::Status Kernel(const KernelArgs& args) {
  return RunProduct({.a = *args.in[0],
                     .b = *args.in[1],
                     .transpose_b = args.As<LinearAttrs>().transpose_weight,
                     .bias = args.in.size() == 3 ? args.in[2] : nullptr,
                     .y = args.out[0]});
}

bool StridedOk(const Tensor& in, int, const Attrs&) { return ProductTakes(in); }

// dx = dy · op(w)ᵀ
Tensors GradX(const GradArgs& g) {
  return {MatMul(g.dy(), g.in(1), {.b = !g.As<LinearAttrs>().transpose_weight})};
}

// dw = xᵀ · dy over all rows, transposed when `w` is.
Tensors GradW(const GradArgs& g) {
  const Tensor x = FoldRows(g.in(0)), dy = FoldRows(g.dy());
  return {g.As<LinearAttrs>().transpose_weight ? MatMul(dy, x, {.a = true})
                                               : MatMul(x, dy, {.a = true})};
}

// dbias = Σ dy over rows.
Tensors GradBias(const GradArgs& g) {
  Axes rows;
  rows.count = static_cast<int8_t>(g.dy().rank() - 1);
  for (int i = 0; i < rows.count; ++i) rows.axis[i] = static_cast<int8_t>(i);
  return {rows.count == 0 ? g.dy() : Sum(g.dy(), rows)};
}

}  // namespace

absl::Span<const AttrField> LinearAttrs::Fields() {
  static constexpr AttrField fields[] = {TALLY_ATTR(LinearAttrs, transpose_weight)};
  return fields;
}

const OpDef kLinear = {
    .name = "linear",
    .attrs = LinearAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Kernel, .cuda = Kernel},
    .strided = {0, 1},
    .strided_ok = StridedOk,
    .grads = {{.of = {0}, .reads = In(1), .fn = GradX},
              {.of = {1}, .reads = In(0), .fn = GradW},
              {.of = {2}, .reads = kNothing, .fn = GradBias}},
};

OpFamily LinearOps() {
  static const OpDef* const ops[] = {&kLinear};
  return ops;
}

Tensor Linear(const Tensor& x, const Tensor& w, const Tensor& bias, bool transpose_weight) {
  const LinearAttrs attrs{transpose_weight};
  if (bias.defined()) return Apply(kLinear, {x, w, bias}, attrs);
  return Apply(kLinear, {x, w}, attrs);
}

}  // namespace tally
