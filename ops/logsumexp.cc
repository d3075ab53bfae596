#include "tally/ops/logsumexp.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/defined.h"
#include "tally/ops/logsumexp_rows.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/softmax.h"
#include "tally/ops/softmax_gpu.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> LogSumExpAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(LogSumExpAttrs, axis),
                                          TALLY_ATTR(LogSumExpAttrs, keepdim)};
  return kFields;
}

namespace {

using Dims = absl::InlinedVector<int64_t, kMaxRank>;

absl::Status InferLogSumExp(const OpCall& call, Specs& out) {
  const auto& a = call.As<LogSumExpAttrs>();
  return InferAxes(call, Axes{a.axis}, a.keepdim, out);
}

Cost PriceLogSumExp(const OpCall& call) {
  const int64_t n = call.in[0].shape[call.As<LogSumExpAttrs>().axis];
  const Count outputs = call.out[0].numel();
  return {.other = outputs * (2 * Folds(n) + n + 1), .transcendental = outputs * (n + 1)};
}

absl::Status RunLogSumExp(const KernelArgs& k) {
  const Tensor& x = *k.in[0];
  const int axis = FromFront(k.As<LogSumExpAttrs>().axis, x.rank());
  LogSumExpRows rows{.dtype = x.dtype(), .n = x.dim(axis), .x = x.raw(), .y = k.out[0].raw()};
  for (int a = 0; a < axis; ++a) rows.outer *= x.dim(a);
  for (int a = axis + 1; a < x.rank(); ++a) rows.inner *= x.dim(a);
  if (x.device().kind != DeviceKind::kCpu) {
    return OnGpu(x.device(), [&](const GpuCall& call) { return LaunchLogSumExp(call, rows); });
  }
  RunLogSumExpRows(rows);
  return absl::OkStatus();
}

Tensors GradLogSumExp(const GradArgs& g) {
  const auto& a = g.As<LogSumExpAttrs>();
  const Shape& x = g.in_spec(0).shape;
  const Tensor dy = KeepDims(g.dy(), x, AxisMask({a.axis}, x.rank()), a.keepdim);
  return {Mul(Softmax(g.in(0), {.axis = a.axis}), dy)};
}

// `axes` as a mask; throws what InferAxes says of it.
uint32_t CheckedMask(const Tensor& x, const Axes& axes) {
  uint32_t mask = 0;
  for (int i = 0; i < axes.size(); ++i) {
    if (axes[i] < -x.rank() || axes[i] >= x.rank()) {
      ThrowInvalid(absl::StrCat("logsumexp: axis ", axes[i], " is outside [", -x.rank(), ", ",
                                x.rank(), "): x is ", x.spec().ToString()));
    }
    const uint32_t bit = uint32_t{1} << FromFront(axes[i], x.rank());
    if ((mask & bit) != 0) {
      ThrowInvalid(absl::StrCat("logsumexp: axis ", FromFront(axes[i], x.rank()), " twice: x is ",
                                x.spec().ToString()));
    }
    mask |= bit;
  }
  return axes.size() == 0 ? AxisMask(axes, x.rank()) : mask;
}

}  // namespace

constinit const OpDef kLogSumExp = {
    .name = "logsumexp",
    .attrs = LogSumExpAttrs::Fields,
    .infer = InferLogSumExp,
    .cost = PriceLogSumExp,
    .kernel = {.cpu = RunLogSumExp, .cuda = RunLogSumExp},
    .grads = {{.of = {0}, .reads = In(0), .fn = GradLogSumExp}},
};

Tensor LogSumExp(const Tensor& x, const Axes& axes, bool keepdim) {
  RequireDefined("logsumexp", {x});
  if (axes.size() == 1) return Apply(kLogSumExp, {x}, LogSumExpAttrs{axes[0], keepdim});
  const uint32_t mask = CheckedMask(x, axes);
  absl::InlinedVector<int, kMaxRank> order;
  Dims dims, ones;
  for (int a = 0; a < x.rank(); ++a) {
    if ((mask >> a & 1) == 0) order.push_back(a), dims.push_back(x.dim(a));
    ones.push_back((mask >> a & 1) == 0 ? x.dim(a) : 1);
  }
  for (int a = 0; a < x.rank(); ++a) {
    if ((mask >> a & 1) != 0) order.push_back(a);
  }
  dims.push_back(CountOf(x.shape(), mask));
  const Tensor rows =
      Reshape(Permute(x, Axes(absl::MakeConstSpan(order))), absl::MakeConstSpan(dims));
  const Tensor y = Apply(kLogSumExp, {rows}, LogSumExpAttrs{});
  return keepdim ? Reshape(y, absl::MakeConstSpan(ones)) : y;
}

OpFamily LogSumExpOps() {
  static const OpDef* const kOps[] = {&kLogSumExp};
  return kOps;
}

}  // namespace tally
