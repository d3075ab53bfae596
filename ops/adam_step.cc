// adamw_ and adam_, one loop: they differ in where the decay goes.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/step_pieces.h"

namespace tally {
namespace {

using internal::StepPieces;

template <typename C>
using Scalars = internal::AdamScalars<C>;

template <bool kCoupled, typename C>
inline __attribute__((always_inline)) void Loop(C* __restrict p, const C* __restrict g,
                                                C* __restrict m, C* __restrict v, int64_t n,
                                                const Scalars<C>& s) {
  for (int64_t i = 0; i < n; ++i) internal::AdamRule<kCoupled>(s, p[i], g[i], m[i], v[i]);
}

TALLY_CLONES void DecoupledBlock(float* const* x, int64_t n, const Scalars<float>& s) {
  Loop<false>(x[0], x[1], x[2], x[3], n, s);
}
TALLY_CLONES void DecoupledBlock(double* const* x, int64_t n, const Scalars<double>& s) {
  Loop<false>(x[0], x[1], x[2], x[3], n, s);
}
TALLY_CLONES void CoupledBlock(float* const* x, int64_t n, const Scalars<float>& s) {
  Loop<true>(x[0], x[1], x[2], x[3], n, s);
}
TALLY_CLONES void CoupledBlock(double* const* x, int64_t n, const Scalars<double>& s) {
  Loop<true>(x[0], x[1], x[2], x[3], n, s);
}

template <bool kCoupled, typename C>
Scalars<C> ScalarsOf(const AdamWAttrs& a) {
  const double bias1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double bias2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
  return {
      C(1 - a.lr * a.weight_decay), C(a.weight_decay), C(1 - a.beta1),  C(a.beta2), C(1 - a.beta2),
      C(1 / std::sqrt(bias2)),      C(a.eps),          C(a.lr / bias1), kCoupled};
}

template <bool kCoupled, bool kMaster>
absl::Status Kernel(const KernelArgs& k) {
  internal::VisitCompute(k.out[0].dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    const auto s = ScalarsOf<kCoupled, C>(k.As<AdamWAttrs>());
    StepPieces<C>(k, kMaster).Run([&](C* const* x, int64_t count) {
      if constexpr (kCoupled) {
        CoupledBlock(x, count, s);
      } else {
        DecoupledBlock(x, count, s);
      }
    });
  });
  return absl::OkStatus();
}

template <bool kCoupled, bool kMaster>
constexpr const char* NameOf() {
  if (kMaster) return kCoupled ? "adam_master_" : "adamw_master_";
  return kCoupled ? "adam_" : "adamw_";
}

template <bool kCoupled, bool kMaster>
absl::Status GpuKernel(const KernelArgs& k) {
  return internal::VisitCompute(k.in[0]->dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    return internal::DeferStep(k.in[0]->device(), NameOf<kCoupled, kMaster>(),
                               internal::GpuStepOf<Scalars<C>::kArrays>(k, kMaster),
                               ScalarsOf<kCoupled, C>(k.As<AdamWAttrs>()));
  });
}

template <bool kCoupled>
Cost Price(const OpCall& c) {
  const Count n = c.in[0].numel();
  // Decay: a product, coupled a sum too. m: sub mul add; v: 3 mul, add; denominator: mul, add;
  // step: div mul sub.
  const int decay = c.As<AdamWAttrs>().weight_decay != 0 ? (kCoupled ? 2 : 1) : 0;
  return {.other = n * (decay + 3 + 4 + 2 + 3), .transcendental = n};
}

template <bool kMaster>
absl::Status Infer(const OpCall& call, Specs&) {
  const char* const names = kMaster ? "master grad param m v" : "param grad m v";
  TALLY_RETURN_IF_ERROR(internal::CheckStep(call, kMaster, 2, names));
  const auto& a = call.As<AdamWAttrs>();
  if (a.step < 1) return InvalidCall(call, "counts steps from 1", names);
  // At 1 the correction for the first steps divides by 0.
  if (!(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1)) {
    return InvalidCall(
        call, absl::StrCat("betas ", a.beta1, " and ", a.beta2, " are not in [0, 1)"), names);
  }
  return absl::OkStatus();
}

template <bool kCoupled, bool kMaster>
constexpr OpDef Define() {
  OpDef op;
  op.name = NameOf<kCoupled, kMaster>();
  op.kind = OpKind::kUpdate;
  op.attrs = AdamWAttrs::Fields;
  op.infer = Infer<kMaster>;
  op.cost = Price<kCoupled>;
  op.kernel = {.cpu = Kernel<kCoupled, kMaster>, .cuda = GpuKernel<kCoupled, kMaster>};
  op.writes = kMaster ? OperandSet{0, 2, 3, 4} : OperandSet{0, 2, 3};
  if (kMaster) op.overwrites = {2};
  return op;
}

const OpDef kAdamW = Define<false, false>();
const OpDef kAdamWMaster = Define<false, true>();
const OpDef kAdam = Define<true, false>();
const OpDef kAdamMaster = Define<true, true>();

}  // namespace

absl::Span<const AttrField> AdamWAttrs::Fields() {
  static const AttrField fields[] = {
      TALLY_ATTR(AdamWAttrs, lr),           TALLY_ATTR(AdamWAttrs, beta1),
      TALLY_ATTR(AdamWAttrs, beta2),        TALLY_ATTR(AdamWAttrs, eps),
      TALLY_ATTR(AdamWAttrs, weight_decay), TALLY_ATTR(AdamWAttrs, step)};
  return fields;
}

void AdamWStep(const StepTarget& target, const Tensor& grad, const Tensor& m, const Tensor& v,
               const AdamWAttrs& attrs) {
  ApplyAll(target.master.defined() ? kAdamWMaster : kAdamW,
           internal::StepArgs(target, grad, {&m, &v}), attrs);
}

void AdamStep(const StepTarget& target, const Tensor& grad, const Tensor& m, const Tensor& v,
              const AdamWAttrs& attrs) {
  ApplyAll(target.master.defined() ? kAdamMaster : kAdam,
           internal::StepArgs(target, grad, {&m, &v}), attrs);
}

OpFamily internal::AdamOps() {
  static const OpDef* const ops[] = {&kAdamW, &kAdamWMaster, &kAdam, &kAdamMaster};
  return ops;
}

}  // namespace tally
