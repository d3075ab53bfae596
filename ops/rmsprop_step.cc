// rmsprop_.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/step_pieces.h"

namespace tally {
namespace {

using internal::StepPieces;

template <typename C>
using Scalars = internal::RmsPropScalars<C>;

// `mean` and `buffer` are null where the step has none.
template <typename C>
struct Arrays {
  C *p, *g, *square, *mean, *buffer;
};

template <bool kCentered, bool kMomentum, typename C>
inline __attribute__((always_inline)) void Loop(C* __restrict p, const C* __restrict g,
                                                C* __restrict square, C* __restrict mean,
                                                C* __restrict buffer, int64_t n,
                                                const Scalars<C>& s) {
  C unused = 0;
  for (int64_t i = 0; i < n; ++i) {
    internal::RmsPropRule<kCentered, kMomentum>(
        s, p[i], g[i], square[i], kCentered ? mean[i] : unused, kMomentum ? buffer[i] : unused);
  }
}

template <typename C>
inline __attribute__((always_inline)) void Choose(const Arrays<C>& x, int64_t n,
                                                  const Scalars<C>& s) {
  if (x.mean != nullptr && x.buffer != nullptr) {
    Loop<true, true>(x.p, x.g, x.square, x.mean, x.buffer, n, s);
  } else if (x.mean != nullptr) {
    Loop<true, false>(x.p, x.g, x.square, x.mean, x.buffer, n, s);
  } else if (x.buffer != nullptr) {
    Loop<false, true>(x.p, x.g, x.square, x.mean, x.buffer, n, s);
  } else {
    Loop<false, false>(x.p, x.g, x.square, x.mean, x.buffer, n, s);
  }
}

TALLY_CLONES void Block(const Arrays<float>& x, int64_t n, const Scalars<float>& s) {
  Choose(x, n, s);
}
TALLY_CLONES void Block(const Arrays<double>& x, int64_t n, const Scalars<double>& s) {
  Choose(x, n, s);
}

template <typename C>
Scalars<C> ScalarsOf(const RmsPropAttrs& a) {
  return {C(a.lr), C(a.alpha), C(1 - a.alpha), C(a.eps), C(a.weight_decay), C(a.momentum)};
}

template <bool kMaster>
absl::Status Kernel(const KernelArgs& k) {
  const RmsPropAttrs& a = k.As<RmsPropAttrs>();
  internal::VisitCompute(k.out[0].dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    const auto s = ScalarsOf<C>(a);
    StepPieces<C>(k, kMaster).Run([&](C* const* x, int64_t count) {
      C* const mean = a.centered ? x[3] : nullptr;
      C* const buffer = a.momentum != 0 ? x[a.centered ? 4 : 3] : nullptr;
      Block(Arrays<C>{x[0], x[1], x[2], mean, buffer}, count, s);
    });
  });
  return absl::OkStatus();
}

template <bool kMaster>
constexpr const char* kName = kMaster ? "rmsprop_master_" : "rmsprop_";

template <bool kMaster>
absl::Status GpuKernel(const KernelArgs& k) {
  const RmsPropAttrs& a = k.As<RmsPropAttrs>();
  return internal::VisitCompute(k.in[0]->dtype(), [&](auto tag) {
    using C = typename decltype(tag)::type;
    auto step = internal::GpuStepOf<Scalars<C>::kArrays>(k, kMaster);
    if (!a.centered) {  // the buffer is the fourth array then
      std::swap(step.data[3], step.data[4]);
      std::swap(step.dtype[3], step.dtype[4]);
    }
    return internal::DeferStep(k.in[0]->device(), kName<kMaster>, step, ScalarsOf<C>(a));
  });
}

Cost Price(const OpCall& c) {
  const RmsPropAttrs& a = c.As<RmsPropAttrs>();
  Count per = 4 + 1 + 3;              // v: 3 mul, add; + eps; div mul sub
  if (a.weight_decay != 0) per += 2;  // g + wd·p
  if (a.centered) per += 3 + 2;       // c: sub mul add; v - c·c
  if (a.momentum != 0) per += 2;      // mu·b + d
  const Count n = c.in[0].numel();
  return {.other = per * n, .transcendental = n};
}

template <bool kMaster>
absl::Status Infer(const OpCall& call, Specs&) {
  const auto& a = call.As<RmsPropAttrs>();
  const char* const names = kMaster      ? "master grad param square state state"
                            : a.centered ? "param grad square mean buffer"
                                         : "param grad square buffer";
  const size_t states = 1 + (a.centered ? 1 : 0) + (a.momentum != 0 ? 1 : 0);
  TALLY_RETURN_IF_ERROR(internal::CheckStep(call, kMaster, states, names));
  if (!(a.alpha >= 0 && a.alpha <= 1)) {
    return InvalidCall(call, absl::StrCat("alpha ", a.alpha, " is not in [0, 1]"), names);
  }
  return absl::OkStatus();
}

template <bool kMaster>
constexpr OpDef Define() {
  OpDef op;
  op.name = kName<kMaster>;
  op.kind = OpKind::kUpdate;
  op.attrs = RmsPropAttrs::Fields;
  op.infer = Infer<kMaster>;
  op.cost = Price;
  op.kernel = {.cpu = Kernel<kMaster>, .cuda = GpuKernel<kMaster>};
  op.writes = kMaster ? OperandSet{0, 2, 3, 4, 5} : OperandSet{0, 2, 3, 4};
  if (kMaster) op.overwrites = {2};
  return op;
}

const OpDef kRmsProp = Define<false>();
const OpDef kRmsPropMaster = Define<true>();

}  // namespace

absl::Span<const AttrField> RmsPropAttrs::Fields() {
  static const AttrField fields[] = {
      TALLY_ATTR(RmsPropAttrs, lr),       TALLY_ATTR(RmsPropAttrs, alpha),
      TALLY_ATTR(RmsPropAttrs, eps),      TALLY_ATTR(RmsPropAttrs, weight_decay),
      TALLY_ATTR(RmsPropAttrs, momentum), TALLY_ATTR(RmsPropAttrs, centered)};
  return fields;
}

void RmsPropStep(const StepTarget& target, const Tensor& grad, const Tensor& square,
                 const Tensor& mean, const Tensor& buffer, const RmsPropAttrs& attrs) {
  ApplyAll(target.master.defined() ? kRmsPropMaster : kRmsProp,
           internal::StepArgs(target, grad,
                              {&square, attrs.centered ? &mean : nullptr,
                               attrs.momentum != 0 ? &buffer : nullptr}),
           attrs);
}

OpFamily internal::RmsPropOps() {
  static const OpDef* const ops[] = {&kRmsProp, &kRmsPropMaster};
  return ops;
}

}  // namespace tally
