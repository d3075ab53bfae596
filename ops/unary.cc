#include "tally/ops/unary.h"

#include <vector>

#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/elementwise_launch.h"
#include "tally/ops/row_constants.h"
#include "tally/ops/select.h"
#include "tally/ops/unary_loops.h"

namespace tally {
namespace {

using namespace internal;  // NOLINT: the constants of the rows

absl::Status InferUnary(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantFloat(call, 0, "x"));
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

absl::Status InferGradient(const OpCall& call, Specs& out) {
  static constexpr char kNames[] = "dy residual";
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantOneDType(call, 0, 2, kNames));
  TALLY_RETURN_IF_ERROR(WantFloat(call, 0, kNames));
  if (call.in[0].shape != call.in[1].shape) return InvalidCall(call, "shapes differ", kNames);
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

template <int kOther, int kTranscendental>
Cost Price(const OpCall& call) {
  return PerElement(call, kOther, kTranscendental);
}

template <UnaryRow kRow>
absl::Status Kernel(const KernelArgs& args) {
  const ElementwiseInput in[] = {{args.in[0]}};
  RunFloat(LoopsOf(kRow).forward, in, args.out[0]);
  return absl::OkStatus();
}

template <UnaryRow kRow>
absl::Status GradientKernel(const KernelArgs& args) {
  const ElementwiseInput in[] = {{args.in[0]}, {args.in[1]}};
  RunFloat(LoopsOf(kRow).gradient, in, args.out[0]);
  return absl::OkStatus();
}

template <UnaryRow kRow>
absl::Status GpuKernel(const KernelArgs& args) {
  return RunOnGpu(LaunchUnary, kRow, args.in[0]->dtype(), {{args.in[0]}}, args.out);
}
template <UnaryRow kRow>
absl::Status GpuGradientKernel(const KernelArgs& args) {
  return RunOnGpu(LaunchUnaryGrad, kRow, args.in[0]->dtype(), {{args.in[0]}, {args.in[1]}},
                  args.out);
}

// sign(x), without a gradient: it is 0 wherever it exists.
Tensor SignOf(const Tensor& x) {
  return Sub(Cast(Greater(x, 0.0), x.dtype()), Cast(Less(x, 0.0), x.dtype()));
}

#define TALLY_RESIDUAL_In x
#define TALLY_RESIDUAL_Out y
#define TALLY_READ_In g.in(0)
#define TALLY_READ_Out g.out(0)

// The derivative of each row in ops, for gradients of gradients.
#define TALLY_UNARY(function, name_, residual, f, other, transcendental, grad, grad_other, \
                    grad_transcendental, composite)                                        \
  Tensor function##Composite(const Tensor& dy, const Tensor& TALLY_RESIDUAL_##residual) composite
#include "tally/ops/unary_rows.inc"

#define TALLY_UNARY(function, name_, residual, f, other, transcendental, grad, grad_other,        \
                    grad_transcendental, composite)                                               \
  const OpDef k##function##Grad = {                                                               \
      .name = name_ "_grad",                                                                      \
      .infer = InferGradient,                                                                     \
      .cost = Price<grad_other, grad_transcendental>,                                             \
      .kernel = {.cpu = GradientKernel<UnaryRow::k##function>,                                    \
                 .cuda = GpuGradientKernel<UnaryRow::k##function>},                               \
  };                                                                                              \
  Tensors function##Rule(const GradArgs& g) {                                                     \
    const Tensor& saved = TALLY_READ_##residual;                                                  \
    if (g.create_graph()) return {function##Composite(g.dy(), saved)};                            \
    return {Apply(k##function##Grad, {g.dy(), saved})};                                           \
  }                                                                                               \
  const OpDef k##function = {                                                                     \
      .name = name_,                                                                              \
      .infer = InferUnary,                                                                        \
      .cost = Price<other, transcendental>,                                                       \
      .kernel = {.cpu = Kernel<UnaryRow::k##function>, .cuda = GpuKernel<UnaryRow::k##function>}, \
      .grads = {{.of = {0}, .reads = residual(0), .fn = function##Rule}},                         \
  };
#define TALLY_UNARY_LINEAR(function, name_, f, other)                                             \
  Tensors function##Rule(const GradArgs& g) { return {function(g.dy())}; }                        \
  const OpDef k##function = {                                                                     \
      .name = name_,                                                                              \
      .infer = InferUnary,                                                                        \
      .cost = Price<other, 0>,                                                                    \
      .kernel = {.cpu = Kernel<UnaryRow::k##function>, .cuda = GpuKernel<UnaryRow::k##function>}, \
      .grads = {{.of = {0}, .fn = function##Rule}},                                               \
  };
#include "tally/ops/unary_rows.inc"

}  // namespace

#define TALLY_UNARY(function, ...) \
  Tensor function(const Tensor& x) { return Apply(k##function, {x}); }
#define TALLY_UNARY_LINEAR TALLY_UNARY
#include "tally/ops/unary_rows.inc"

OpFamily UnaryOps() {
  static const OpDef* const kOps[] = {
#define TALLY_UNARY(function, ...) &k##function, &k##function##Grad,
#define TALLY_UNARY_LINEAR(function, ...) &k##function,
#include "tally/ops/unary_rows.inc"
  };
  return kOps;
}

}  // namespace tally
