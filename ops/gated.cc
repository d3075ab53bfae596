#include "tally/ops/gated.h"

#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/elementwise_launch.h"
#include "tally/ops/gated_loops.h"
#include "tally/ops/row_constants.h"
#include "tally/ops/unary.h"

namespace tally {
namespace {

using namespace internal;  // NOLINT: loops, checks and constants of the elementwise families

absl::Status CheckAlike(const OpCall& call, int count, const char* names) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, count));
  TALLY_RETURN_IF_ERROR(WantOneDType(call, 0, count, names));
  TALLY_RETURN_IF_ERROR(WantFloat(call, 0, names));
  for (int i = 1; i < count; ++i) {
    if (call.in[i].shape != call.in[0].shape) return InvalidCall(call, "shapes differ", names);
  }
  return absl::OkStatus();
}

absl::Status InferGated(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckAlike(call, 2, "gate up"));
  out = {call.in[0]};
  return absl::OkStatus();
}
absl::Status InferGradient(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckAlike(call, 3, "dy gate up"));
  out = {call.in[0], call.in[0]};
  return absl::OkStatus();
}

template <int kOther, int kTranscendental>
Cost Price(const OpCall& call) {
  return PerElement(call, kOther, kTranscendental);
}

template <GatedRow kRow>
absl::Status Kernel(const KernelArgs& k) {
  const ElementwiseInput in[] = {{k.in[0]}, {k.in[1]}};
  RunFloat(LoopsOf(kRow).forward, in, k.out[0]);
  return absl::OkStatus();
}
template <GatedRow kRow>
absl::Status GradientKernel(const KernelArgs& k) {
  RunGatedGrad(kRow, *k.in[0], *k.in[1], *k.in[2], k.out[0], k.out[1]);
  return absl::OkStatus();
}

template <GatedRow kRow>
absl::Status GpuKernel(const KernelArgs& k) {
  return RunOnGpu(LaunchGated, kRow, k.in[0]->dtype(), {{k.in[0]}, {k.in[1]}}, k.out);
}
template <GatedRow kRow>
absl::Status GpuGradientKernel(const KernelArgs& k) {
  return RunOnGpu(LaunchGatedGrad, kRow, k.in[0]->dtype(), {{k.in[0]}, {k.in[1]}, {k.in[2]}},
                  k.out);
}

// The activation and its derivative in ops, for gradients of gradients.
#define TALLY_GATED(function, name_, f, other, transcendental, grad, grad_other, \
                    grad_transcendental, composite)                              \
  void function##Composite(const Tensor& a, Tensor& act, Tensor& slope) composite
#include "tally/ops/gated_rows.inc"

#define TALLY_GATED(function, name_, f, other, transcendental, grad, grad_other,                  \
                    grad_transcendental, composite)                                               \
  const OpDef k##function##Grad = {                                                               \
      .name = name_ "_grad",                                                                      \
      .infer = InferGradient,                                                                     \
      .cost = Price<grad_other, grad_transcendental>,                                             \
      .kernel = {.cpu = GradientKernel<GatedRow::k##function>,                                    \
                 .cuda = GpuGradientKernel<GatedRow::k##function>},                               \
      .strided = {0, 1, 2},                                                                       \
  };                                                                                              \
  Tensors function##Rule(const GradArgs& g) {                                                     \
    const Tensor &gate = g.in(0), &up = g.in(1);                                                  \
    if (!g.create_graph()) return ApplyAll(k##function##Grad, {g.dy(), gate, up});                \
    Tensor act, slope;                                                                            \
    function##Composite(gate, act, slope);                                                        \
    return {Mul(Mul(g.dy(), up), slope), Mul(g.dy(), act)};                                       \
  }                                                                                               \
  const OpDef k##function = {                                                                     \
      .name = name_,                                                                              \
      .infer = InferGated,                                                                        \
      .cost = Price<other, transcendental>,                                                       \
      .kernel = {.cpu = Kernel<GatedRow::k##function>, .cuda = GpuKernel<GatedRow::k##function>}, \
      .strided = {0, 1},                                                                          \
      .grads = {{.of = {0, 1}, .reads = In(0) | In(1), .fn = function##Rule}},                    \
  };
#include "tally/ops/gated_rows.inc"

}  // namespace

#define TALLY_GATED(function, ...) \
  Tensor function(const Tensor& gate, const Tensor& up) { return Apply(k##function, {gate, up}); }
#include "tally/ops/gated_rows.inc"

OpFamily GatedOps() {
  static const OpDef* const kOps[] = {
#define TALLY_GATED(function, ...) &k##function, &k##function##Grad,
#include "tally/ops/gated_rows.inc"
  };
  return kOps;
}

}  // namespace tally
