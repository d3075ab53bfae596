// sgd_.
#include "tally/ops/optimizer_step.h"
#include "tally/ops/step_pieces.h"

namespace tally {
namespace {

using internal::StepPieces;

template <typename C>
using Scalars = internal::SgdScalars<C>;

template <typename C>
inline __attribute__((always_inline)) void Loop(C* __restrict p, const C* __restrict g,
                                                C* __restrict b, int64_t n, const Scalars<C>& s) {
  if (b == nullptr) {
    for (int64_t i = 0; i < n; ++i) internal::SgdRule(s, p[i], g[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) internal::SgdMomentumRule(s, p[i], g[i], b[i]);
}

TALLY_CLONES void Block(float* const* x, int64_t n, const Scalars<float>& s) {
  Loop(x[0], x[1], x[2], n, s);
}
TALLY_CLONES void Block(double* const* x, int64_t n, const Scalars<double>& s) {
  Loop(x[0], x[1], x[2], n, s);
}

template <typename C>
Scalars<C> ScalarsOf(const SgdAttrs& a) {
  return {C(a.lr), C(a.momentum), C(1 - a.dampening), C(a.weight_decay), a.nesterov, a.first};
}

template <bool kMaster>
absl::Status Kernel(const KernelArgs& k) {
  internal::VisitCompute(k.out[0].dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    const auto s = ScalarsOf<C>(k.As<SgdAttrs>());
    StepPieces<C>(k, kMaster).Run([&](C* const* x, int64_t count) { Block(x, count, s); });
  });
  return absl::OkStatus();
}

template <bool kMaster>
constexpr const char* kName = kMaster ? "sgd_master_" : "sgd_";

template <bool kMaster>
absl::Status GpuKernel(const KernelArgs& k) {
  return internal::VisitCompute(k.in[0]->dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    return internal::DeferStep(k.in[0]->device(), kName<kMaster>,
                               internal::GpuStepOf<Scalars<C>::kArrays>(k, kMaster),
                               ScalarsOf<C>(k.As<SgdAttrs>()));
  });
}

Cost Price(const OpCall& c) {
  const SgdAttrs& a = c.As<SgdAttrs>();
  const bool buffer = a.momentum != 0;
  Count per = 2;                                            // p -= lr·d
  if (a.weight_decay != 0) per += 2;                        // g + wd·p
  if (buffer && !a.first) per += a.dampening != 0 ? 3 : 2;  // mu·b + (1-damp)·g
  if (buffer && a.nesterov) per += 2;                       // g + mu·b
  return {.other = per * c.in[0].numel()};
}

template <bool kMaster>
absl::Status Infer(const OpCall& call, Specs&) {
  return internal::CheckStep(call, kMaster, call.As<SgdAttrs>().momentum != 0 ? 1 : 0,
                             kMaster ? "master grad param buffer" : "param grad buffer");
}

template <bool kMaster>
constexpr OpDef Define() {
  OpDef op;
  op.name = kName<kMaster>;
  op.kind = OpKind::kUpdate;
  op.attrs = SgdAttrs::Fields;
  op.infer = Infer<kMaster>;
  op.cost = Price;
  op.kernel = {.cpu = Kernel<kMaster>, .cuda = GpuKernel<kMaster>};
  op.writes = kMaster ? OperandSet{0, 2, 3} : OperandSet{0, 2};
  if (kMaster) op.overwrites = {2};
  return op;
}

const OpDef kSgd = Define<false>();
const OpDef kSgdMaster = Define<true>();

}  // namespace

absl::Span<const AttrField> SgdAttrs::Fields() {
  static const AttrField fields[] = {
      TALLY_ATTR(SgdAttrs, lr),        TALLY_ATTR(SgdAttrs, momentum),
      TALLY_ATTR(SgdAttrs, dampening), TALLY_ATTR(SgdAttrs, weight_decay),
      TALLY_ATTR(SgdAttrs, nesterov),  TALLY_ATTR(SgdAttrs, first)};
  return fields;
}

void SgdStep(const StepTarget& target, const Tensor& grad, const Tensor& buffer,
             const SgdAttrs& attrs) {
  ApplyAll(target.master.defined() ? kSgdMaster : kSgd,
           internal::StepArgs(target, grad, {attrs.momentum != 0 ? &buffer : nullptr}), attrs);
}

OpFamily internal::SgdOps() {
  static const OpDef* const ops[] = {&kSgd, &kSgdMaster};
  return ops;
}

}  // namespace tally
