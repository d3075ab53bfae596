#include "tally/ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/rows.h"

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

// With p = 1 nothing is kept and the scale does not matter.
template <typename T>
ComputeType<T> ScaleOf(double p) {
  return p == 1 ? 0 : static_cast<ComputeType<T>>(1 / (1 - p));
}

// Uniforms are integers below 2^24 times 2^-24: u >= p iff the integer is at least this.
uint32_t ThresholdOf(double p) { return static_cast<uint32_t>(std::ceil(p * 16777216.0)); }

template <typename T>
void Select(const T* x, const bool* mask, ComputeType<T> scale, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Store<T>(mask[i] ? Load(x[i]) * scale : 0);
}

constexpr int64_t kWords = 1024;  // made at a time

absl::Status RunDropout(const KernelArgs& k) {
  const auto& a = k.As<DropoutAttrs>();
  const uint32_t threshold = ThresholdOf(a.p);
  const int64_t numel = k.in[0]->numel();
  bool* mask = k.Out<bool>(1);
  VisitFloat(k.in[0]->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = k.In<T>(0);
    T* y = k.Out<T>(0);
    ForRows((numel + kWords - 1) / kWords, kWords, [&](int64_t begin, int64_t end) {
      uint32_t words[kWords];
      for (int64_t first = begin * kWords; first < std::min(numel, end * kWords); first += kWords) {
        const int64_t n = std::min(kWords, numel - first);
        FillRandomBits(a.seed, static_cast<uint32_t>(a.stream), a.offset + first, words, n);
        for (int64_t i = 0; i < n; ++i) mask[first + i] = (words[i] >> 8) >= threshold;
        Select(x + first, mask + first, ScaleOf<T>(a.p), n, y + first);
      }
    });
  });
  return absl::OkStatus();
}

absl::Status RunDropoutGrad(const KernelArgs& k) {
  const bool* mask = k.In<bool>(1);
  VisitFloat(k.in[0]->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* dy = k.In<T>(0);
    T* dx = k.Out<T>(0);
    const ComputeType<T> scale = ScaleOf<T>(k.As<DropoutGradAttrs>().p);
    ForRows(k.in[0]->numel(), 1, [&](int64_t begin, int64_t end) {
      Select(dy + begin, mask + begin, scale, end - begin, dx + begin);
    });
  });
  return absl::OkStatus();
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
    .kernel = {.cpu = RunDropout},
    .grads = {{.of = {0}, .reads = Out(1), .fn = GradDropout}},
};

constinit const OpDef kDropoutGrad = {
    .name = "dropout_grad",
    .attrs = DropoutGradAttrs::Fields,
    .infer = InferDropoutGrad,
    .cost = PriceDropoutGrad,
    .kernel = {.cpu = RunDropoutGrad},
    .grads = {{.of = {0}, .reads = In(1), .fn = GradDropoutGrad}},
    .no_gradient = {1},
};

Tensor Dropout(const Tensor& x, double p, Random& random) {
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
