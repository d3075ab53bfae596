#include "tally/ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/dropout_gpu.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/dropout.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// With p = 1 nothing is kept and the scale does not matter.
template <typename T>
ComputeType<T> ScaleOf(double p) {
  return p == 1 ? 0 : static_cast<ComputeType<T>>(1 / (1 - p));
}

// mask_i = (word_i >> 8) >= threshold.
void MaskOf(const uint32_t* words, uint32_t threshold, int64_t n, uint8_t* mask) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint32_t, decltype(d)> du;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto below = hn::Set(d, static_cast<int32_t>(threshold) - 1), one = hn::Set(d, 1);
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto uniform = hn::BitCast(d, hn::ShiftRight<8>(hn::LoadU(du, words + i)));
    const auto keep = hn::IfThenElseZero(hn::Gt(uniform, below), one);
    hn::StoreU(hn::DemoteTo(d8, keep), d8, mask + i);
  }
  for (; i < n; ++i) mask[i] = (words[i] >> 8) >= threshold;
}

// y_i = mask_i ? x_i scale : 0.
template <typename T>
void SelectOf(const T* x, const uint8_t* mask, ComputeType<T> scale, int64_t n, T* y) {
  int64_t i = 0;
  if constexpr (std::is_same_v<ComputeType<T>, float>) {
    const RowTag<T> d;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<uint8_t, decltype(d)> d8;
    const auto s = hn::Set(d, scale);
    const int64_t lanes = hn::Lanes(d);
    for (; i + lanes <= n; i += lanes) {
      const auto bytes = hn::PromoteTo(di, hn::LoadU(d8, mask + i));
      const auto keep = hn::RebindMask(d, hn::Ne(bytes, hn::Zero(di)));
      StoreFull(hn::IfThenElseZero(keep, hn::Mul(LoadFull(d, x + i), s)), d, y + i);
    }
  }
  for (; i < n; ++i) y[i] = Store<T>(mask[i] != 0 ? Load(x[i]) * scale : 0);
}

void Select(DType dtype, const void* x, const uint8_t* mask, double p, int64_t begin, int64_t end,
            void* y) {
  VisitFloat(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    SelectOf(static_cast<const T*>(x) + begin, mask + begin, ScaleOf<T>(p), end - begin,
             static_cast<T*>(y) + begin);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

absl::Span<const AttrField> DropoutAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(DropoutAttrs, p), TALLY_ATTR(DropoutAttrs, seed), TALLY_ATTR(DropoutAttrs, stream),
      TALLY_ATTR_RNG_OFFSET(DropoutAttrs, offset)};
  return kFields;
}
absl::Span<const AttrField> DropoutGradAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(DropoutGradAttrs, p)};
  return kFields;
}

namespace {

HWY_EXPORT(MaskOf);
HWY_EXPORT(Select);

absl::Status CheckP(const OpCall& call, double p, const char* names) {
  TALLY_RETURN_IF_ERROR(WantFloat(call, names));
  if (p >= 0 && p <= 1) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("p is ", p, ", outside [0, 1]"), names);
}

absl::Status InferDropout(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(CheckP(call, call.As<DropoutAttrs>().p, "x"));
  out = {call.in[0], TensorSpec{DType::kBool, call.in[0].shape}};
  return absl::OkStatus();
}

absl::Status InferDropoutGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(CheckP(call, call.As<DropoutGradAttrs>().p, "dy mask"));
  if (call.in[1] != TensorSpec{DType::kBool, call.in[0].shape}) {
    return InvalidCall(call, "the mask is bool, of dy's shape", "dy mask");
  }
  out = {call.in[0]};
  return absl::OkStatus();
}

Cost PriceDropout(const OpCall& call) { return {.other = 2 * Count(call.in[0].numel())}; }
Cost PriceDropoutGrad(const OpCall& call) { return {.other = call.in[0].numel()}; }

// Uniforms are integers below 2^24 times 2^-24: u >= p iff the integer is at least this.
uint32_t ThresholdOf(double p) { return static_cast<uint32_t>(std::ceil(p * 16777216.0)); }

constexpr int64_t kWords = 1024;  // made at a time

absl::Status RunDropout(const KernelArgs& k) {
  const auto& a = k.As<DropoutAttrs>();
  const uint32_t threshold = ThresholdOf(a.p);
  const Tensor& x = *k.in[0];
  auto* mask = reinterpret_cast<uint8_t*>(k.Out<bool>(1));
  ForRows((x.numel() + kWords - 1) / kWords, kWords, [&](int64_t begin, int64_t end) {
    uint32_t words[kWords];
    end = std::min(x.numel(), end * kWords);
    for (int64_t first = begin * kWords; first < end; first += kWords) {
      const int64_t n = std::min(kWords, end - first);
      FillRandomBits(a.seed, static_cast<uint32_t>(a.stream), a.offset + first, words, n);
      HWY_DYNAMIC_DISPATCH(MaskOf)(words, threshold, n, mask + first);
      HWY_DYNAMIC_DISPATCH(Select)
      (x.dtype(), x.raw(), mask, a.p, first, first + n, k.out[0].raw());
    }
  });
  return absl::OkStatus();
}

absl::Status RunDropoutGrad(const KernelArgs& k) {
  const Tensor& dy = *k.in[0];
  const auto* mask = reinterpret_cast<const uint8_t*>(k.In<bool>(1));
  ForRows(dy.numel(), 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Select)
    (dy.dtype(), dy.raw(), mask, k.As<DropoutGradAttrs>().p, begin, end, k.out[0].raw());
  });
  return absl::OkStatus();
}

// x and y; with p = 1 nothing is kept and the scale does not matter.
internal::GpuDropout OverGpu(const Tensor& x, double p, const Tensor& mask, const Tensor& y) {
  return {.dtype = x.dtype(),
          .n = x.numel(),
          .scale = p == 1 ? 0 : 1 / (1 - p),
          .x = x.raw(),
          .y = y.raw(),
          .mask = mask.data<bool>()};
}

absl::Status DropoutOnGpu(const KernelArgs& k) {
  const auto& a = k.As<DropoutAttrs>();
  internal::GpuDropout d = OverGpu(*k.in[0], a.p, k.out[1], k.out[0]);
  d.threshold = ThresholdOf(a.p);
  d.stream = static_cast<uint32_t>(a.stream);
  d.seed = a.seed;
  d.offset = a.offset;
  return OnGpu(k.out[0].device(),
               [&](const GpuCall& call) { return internal::LaunchDropout(call, d); });
}

absl::Status DropoutGradOnGpu(const KernelArgs& k) {
  const auto d = OverGpu(*k.in[0], k.As<DropoutGradAttrs>().p, *k.in[1], k.out[0]);
  return OnGpu(k.out[0].device(),
               [&](const GpuCall& call) { return internal::LaunchDropoutGrad(call, d); });
}

// dx = keep ? dy / (1 - p) : 0, the same for either op.
Tensors GradDropout(const GradArgs& g) {
  return {Apply(kDropoutGrad, {g.dy(0), g.out(1)}, DropoutGradAttrs{g.As<DropoutAttrs>().p})};
}
Tensors GradDropoutGrad(const GradArgs& g) {
  return {Apply(kDropoutGrad, {g.dy(), g.in(1)}, g.As<DropoutGradAttrs>())};
}

}  // namespace

constinit const OpDef kDropout = {
    .name = "dropout",
    .attrs = DropoutAttrs::Fields,
    .infer = InferDropout,
    .cost = PriceDropout,
    .kernel = {.cpu = RunDropout, .cuda = DropoutOnGpu},
    .grads = {{.of = {0}, .reads = Out(1), .fn = GradDropout}},
};

constinit const OpDef kDropoutGrad = {
    .name = "dropout_grad",
    .attrs = DropoutGradAttrs::Fields,
    .infer = InferDropoutGrad,
    .cost = PriceDropoutGrad,
    .kernel = {.cpu = RunDropoutGrad, .cuda = DropoutGradOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradDropoutGrad}},
    .no_gradient = {1},
};

Tensor Dropout(const Tensor& x, double p, Random& random) {
  RequireDefined("dropout", {x});
  const auto words = static_cast<uint64_t>(x.numel());
  const DropoutAttrs attrs{p, random.seed(), static_cast<int32_t>(random.stream()),
                           random.offset()};
  Tensor y = Apply(kDropout, {x}, attrs);
  random.Reserve(words);  // a refused call takes nothing
  return y;
}

OpFamily DropoutOps() {
  static const OpDef* const kOps[] = {&kDropout, &kDropoutGrad};
  return kOps;
}

}  // namespace tally
#endif  // HWY_ONCE
