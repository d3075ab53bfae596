#include <algorithm>
#include <cmath>

#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/lines_gpu.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> ArgMaxAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ArgMaxAttrs, axis),
                                          TALLY_ATTR(ArgMaxAttrs, keepdim)};
  return kFields;
}

namespace {

// The axis as a list, for what is shared with the other reductions.
Axes AxesOf(const ArgMaxAttrs& a) { return {a.axis}; }

absl::Status InferArgMax(const OpCall& call, Specs& out) {
  const auto& a = call.As<ArgMaxAttrs>();
  if (call.in.size() == 1) {
    int axis = 0;  // before it is narrowed to an entry of Axes
    TALLY_RETURN_IF_ERROR(ResolveAxis(call, a.axis, call.in[0].rank(), &axis));
  }
  TALLY_RETURN_IF_ERROR(InferAxes(call, AxesOf(a), a.keepdim, out));
  out[0].dtype = DType::kI64;
  if (call.in[0].shape[a.axis] == 0 && out[0].numel() > 0) {
    return InvalidCall(call, "has no position over no elements");
  }
  return absl::OkStatus();
}

Cost PriceArgMax(const OpCall& call) {
  const int64_t n = call.in[0].shape[call.As<ArgMaxAttrs>().axis];
  return {.other = call.out[0].numel() * Folds(n)};
}

// Column by column, so that neighbours in memory are read together.
template <typename T>
void ArgMaxOf(const T* x, int64_t n, int64_t inner, int64_t* out) {
  std::fill(out, out + inner, 0);
  for (int64_t i = 1; i < n; ++i) {
    for (int64_t j = 0; j < inner; ++j) {
      const ComputeType<T> value = Load(x[i * inner + j]), best = Load(x[out[j] * inner + j]);
      if (value > best || (std::isnan(value) && !std::isnan(best))) out[j] = i;
    }
  }
}

absl::Status RunArgMax(const KernelArgs& k) {
  const Tensor& x = *k.in[0];
  if (k.out[0].numel() == 0) return absl::OkStatus();
  const int axis = FromFront(k.As<ArgMaxAttrs>().axis, x.rank());
  int64_t outer = 1, inner = 1;
  for (int a = 0; a < axis; ++a) outer *= x.dim(a);
  for (int a = axis + 1; a < x.rank(); ++a) inner *= x.dim(a);
  const int64_t n = x.dim(axis);
  if (x.device().kind != DeviceKind::kCpu) {
    const GpuLines lines{.dtype = x.dtype(), .outer = outer, .n = n, .inner = inner};
    return OnGpu(x.device(), [&](const GpuCall& call) {
      return LaunchArgMax(call, lines, x.raw(), k.out[0].raw());
    });
  }
  int64_t* out = k.Out<int64_t>(0);
  VisitFloat(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = k.In<T>(0);
    ForRows(outer, n * inner, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) ArgMaxOf(in + o * n * inner, n, inner, out + o * inner);
    });
  });
  return absl::OkStatus();
}

}  // namespace

constinit const OpDef kArgMax = {
    .name = "argmax",
    .attrs = ArgMaxAttrs::Fields,
    .infer = InferArgMax,
    .cost = PriceArgMax,
    .kernel = {.cpu = RunArgMax, .cuda = RunArgMax},
    .no_gradient = {0},
};

Tensor ArgMax(const Tensor& x, int axis, bool keepdim) {
  return Apply(kArgMax, {x}, ArgMaxAttrs{axis, keepdim});
}

}  // namespace tally
