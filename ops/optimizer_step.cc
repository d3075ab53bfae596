#include "tally/ops/optimizer_step.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/tensor/dtype_dispatch.h"

// The loops below vectorise; one clone per instruction set is chosen when the program starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define TALLY_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TALLY_CLONES
#endif

namespace tally {
namespace {

constexpr int64_t kBlock = 16384;  // elements a thread takes at a time

absl::Status CheckSpecs(const OpCall& call, const char* names) {
  const TensorSpec& p = call.in[0];
  if (!IsFloat(p.dtype) || ItemSize(p.dtype) < 2) {
    return InvalidCall(call, "updates f64, f32, bf16 and f16 only", names);
  }
  if (call.in[1] != p)
    return InvalidCall(call, "the gradient must have the parameter's spec", names);
  const TensorSpec state{StateDType(p.dtype), p.shape};
  for (size_t i = 2; i < call.in.size(); ++i) {
    if (call.in[i] != state) {
      return InvalidCall(call, absl::StrCat("state must be ", state.ToString()), names);
    }
  }
  return absl::OkStatus();
}

// Calls step(p, g, at, count) for pieces of the parameter and its gradient in the compute type, so
// that one loop serves every dtype: in place where that is their own type, else in widened copies
// whose parameters are rounded back once. `at` is where the piece begins.
template <typename T, typename Fn>
void ForPieces(T* p, const T* g, int64_t n, const Fn& step) {
  using C = ComputeType<T>;
#pragma omp parallel for schedule(static) if (n >= 2 * kBlock)
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    if constexpr (std::is_same_v<T, C>) {
      step(p + begin, g + begin, begin, end - begin);
    } else {
      constexpr int64_t kPiece = 1024;
      C wide_p[kPiece], wide_g[kPiece];
      for (int64_t at = begin; at < end; at += kPiece) {
        const int64_t count = std::min(kPiece, end - at);
        for (int64_t i = 0; i < count; ++i) wide_p[i] = Load(p[at + i]);
        for (int64_t i = 0; i < count; ++i) wide_g[i] = Load(g[at + i]);
        step(wide_p, wide_g, at, count);
        for (int64_t i = 0; i < count; ++i) p[at + i] = Store<T>(wide_p[i]);
      }
    }
  }
}

template <typename C>
struct AdamWScalars {
  C decay, one_minus_beta1, beta2, one_minus_beta2, inv_sqrt_bias2, eps, step;
};

template <typename C>
inline __attribute__((always_inline)) void AdamWLoop(C* __restrict p, const C* __restrict g,
                                                     C* __restrict m, C* __restrict v, int64_t n,
                                                     const AdamWScalars<C>& s) {
  for (int64_t i = 0; i < n; ++i) {
    const C grad = g[i];
    m[i] = m[i] + s.one_minus_beta1 * (grad - m[i]);
    v[i] = s.beta2 * v[i] + s.one_minus_beta2 * grad * grad;
    const C denominator = std::sqrt(v[i]) * s.inv_sqrt_bias2 + s.eps;
    p[i] = p[i] * s.decay - s.step * (m[i] / denominator);
  }
}

TALLY_CLONES void AdamWBlock(float* p, const float* g, float* m, float* v, int64_t n,
                             const AdamWScalars<float>& s) {
  AdamWLoop(p, g, m, v, n, s);
}
TALLY_CLONES void AdamWBlock(double* p, const double* g, double* m, double* v, int64_t n,
                             const AdamWScalars<double>& s) {
  AdamWLoop(p, g, m, v, n, s);
}

absl::Status AdamWKernel(const KernelArgs& k) {
  const AdamWAttrs& a = k.As<AdamWAttrs>();
  VisitFloat(k.out[0].dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const double bias1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double bias2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
    const AdamWScalars<C> s{
        C(1 - a.lr * a.weight_decay), C(1 - a.beta1), C(a.beta2),     C(1 - a.beta2),
        C(1 / std::sqrt(bias2)),      C(a.eps),       C(a.lr / bias1)};
    C* const m = k.Out<C>(1);
    C* const v = k.Out<C>(2);
    ForPieces(k.Out<T>(0), k.In<T>(1), k.out[0].numel(),
              [&](C* p, const C* g, int64_t at, int64_t count) {
                AdamWBlock(p, g, m + at, v + at, count, s);
              });
  });
  return absl::OkStatus();
}

Cost AdamWCost(const OpCall& c) {
  const Count n = c.in[0].numel();
  // decay 1; m: sub mul add; v: 3 mul, add; denominator: mul, add; step: div mul sub.
  const int decay = c.As<AdamWAttrs>().weight_decay != 0 ? 1 : 0;
  return {.other = n * (decay + 3 + 4 + 2 + 3), .transcendental = n};
}

template <typename C>
struct SgdScalars {
  C lr, momentum, keep, decay;
  bool nesterov, first, has_buffer;
};

template <typename C>
inline __attribute__((always_inline)) void SgdLoop(C* __restrict p, const C* __restrict g,
                                                   C* __restrict b, int64_t n,
                                                   const SgdScalars<C>& s) {
  if (!s.has_buffer) {
    for (int64_t i = 0; i < n; ++i) p[i] -= s.lr * (g[i] + s.decay * p[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const C grad = g[i] + s.decay * p[i];
    b[i] = s.first ? grad : s.momentum * b[i] + s.keep * grad;
    p[i] -= s.lr * (s.nesterov ? grad + s.momentum * b[i] : b[i]);
  }
}

TALLY_CLONES void SgdBlock(float* p, const float* g, float* b, int64_t n,
                           const SgdScalars<float>& s) {
  SgdLoop(p, g, b, n, s);
}
TALLY_CLONES void SgdBlock(double* p, const double* g, double* b, int64_t n,
                           const SgdScalars<double>& s) {
  SgdLoop(p, g, b, n, s);
}

absl::Status SgdKernel(const KernelArgs& k) {
  const SgdAttrs& a = k.As<SgdAttrs>();
  const bool has_buffer = k.out.size() == 2;
  VisitFloat(k.out[0].dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const SgdScalars<C> s{C(a.lr),    C(a.momentum), C(1 - a.dampening), C(a.weight_decay),
                          a.nesterov, a.first,       has_buffer};
    C* const b = has_buffer ? k.Out<C>(1) : nullptr;
    ForPieces(k.Out<T>(0), k.In<T>(1), k.out[0].numel(),
              [&](C* p, const C* g, int64_t at, int64_t count) {
                SgdBlock(p, g, has_buffer ? b + at : nullptr, count, s);
              });
  });
  return absl::OkStatus();
}

Cost SgdCost(const OpCall& c) {
  const SgdAttrs& a = c.As<SgdAttrs>();
  const Count n = c.in[0].numel();
  Count per = 2;                                                      // p -= lr·d
  if (a.weight_decay != 0) per += 2;                                  // g + wd·p
  if (c.in.size() == 3 && !a.first) per += a.dampening != 0 ? 3 : 2;  // mu·b + (1-damp)·g
  if (c.in.size() == 3 && a.nesterov) per += 2;                       // g + mu·b
  return {.other = n * per};
}

absl::Status AdamWInfer(const OpCall& call, Specs&) {
  if (call.in.size() != 4) return InvalidCall(call, "wants param, grad, m and v", "param grad m v");
  const auto& a = call.As<AdamWAttrs>();
  if (a.step < 1) return InvalidCall(call, "counts steps from 1", "param");
  // At 1 the correction for the first steps divides by 0.
  if (!(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1)) {
    return InvalidCall(
        call, absl::StrCat("betas ", a.beta1, " and ", a.beta2, " are not in [0, 1)"), "param");
  }
  return CheckSpecs(call, "param grad m v");
}

absl::Status SgdInfer(const OpCall& call, Specs&) {
  const bool momentum = call.As<SgdAttrs>().momentum != 0;
  if (call.in.size() != (momentum ? 3u : 2u)) {
    return InvalidCall(call, "wants a buffer exactly when momentum is not 0", "param grad buffer");
  }
  return CheckSpecs(call, "param grad buffer");
}

const OpDef kAdamW = {
    .name = "adamw_",
    .kind = OpKind::kUpdate,
    .attrs = AdamWAttrs::Fields,
    .infer = AdamWInfer,
    .cost = AdamWCost,
    .kernel = {.cpu = AdamWKernel},
    .writes = {0, 2, 3},
};

const OpDef kSgd = {
    .name = "sgd_",
    .kind = OpKind::kUpdate,
    .attrs = SgdAttrs::Fields,
    .infer = SgdInfer,
    .cost = SgdCost,
    .kernel = {.cpu = SgdKernel},
    .writes = {0, 2},
};

}  // namespace

absl::Span<const AttrField> AdamWAttrs::Fields() {
  static const AttrField fields[] = {
      TALLY_ATTR(AdamWAttrs, lr),           TALLY_ATTR(AdamWAttrs, beta1),
      TALLY_ATTR(AdamWAttrs, beta2),        TALLY_ATTR(AdamWAttrs, eps),
      TALLY_ATTR(AdamWAttrs, weight_decay), TALLY_ATTR(AdamWAttrs, step)};
  return fields;
}

absl::Span<const AttrField> SgdAttrs::Fields() {
  static const AttrField fields[] = {
      TALLY_ATTR(SgdAttrs, lr),        TALLY_ATTR(SgdAttrs, momentum),
      TALLY_ATTR(SgdAttrs, dampening), TALLY_ATTR(SgdAttrs, weight_decay),
      TALLY_ATTR(SgdAttrs, nesterov),  TALLY_ATTR(SgdAttrs, first)};
  return fields;
}

DType StateDType(DType param) { return param == DType::kF64 ? DType::kF64 : DType::kF32; }

void AdamWStep(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v,
               const AdamWAttrs& attrs) {
  Apply(kAdamW, {param, grad, m, v}, attrs);
}

void SgdStep(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdAttrs& attrs) {
  if (attrs.momentum != 0) {
    Apply(kSgd, {param, grad, buffer}, attrs);
  } else {
    Apply(kSgd, {param, grad}, attrs);
  }
}

OpFamily OptimizerOps() {
  static const OpDef* const ops[] = {&kAdamW, &kSgd};
  return ops;
}

}  // namespace tally
