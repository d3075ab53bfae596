#include "tally/ops/softmax.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/rows.h"
#include "tally/ops/softmax_gpu.h"
#include "tally/ops/softmax_rows.h"
#include "tally/ops/unary.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> SoftmaxAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(SoftmaxAttrs, axis), TALLY_ATTR(SoftmaxAttrs, scale),
      TALLY_ATTR(SoftmaxAttrs, causal), TALLY_ATTR_OPTIONAL(SoftmaxAttrs, window),
      TALLY_ATTR_OPTIONAL(SoftmaxAttrs, documents)};
  return kFields;
}
absl::Span<const AttrField> LogSoftmaxAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(LogSoftmaxAttrs, axis)};
  return kFields;
}

namespace {

absl::Status CheckAxis(const OpCall& call, int axis, int inputs) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, inputs));
  TALLY_RETURN_IF_ERROR(WantFloat(call));
  int resolved = 0;
  return ResolveAxis(call, axis, call.in[0].rank(), &resolved);
}

absl::Status CheckSoftmax(const OpCall& call, int inputs) {
  const auto& a = call.As<SoftmaxAttrs>();
  TALLY_RETURN_IF_ERROR(CheckAxis(call, a.axis, inputs));
  const int rank = call.in[0].rank();
  if (!std::isfinite(a.scale)) return InvalidCall(call, "the scale is not finite");
  const AttentionMask mask = a.mask();
  if (!mask.hides() && mask.window == 0) return absl::OkStatus();
  const char* const which = mask.causal ? "causal" : mask.window != 0 ? "a window" : "documents";
  const char* const verb = mask.causal || mask.window != 0 ? " wants " : " want ";
  if (rank < 2) {
    return InvalidCall(call, absl::StrCat(which, verb, "the axes [..., queries, keys]"));
  }
  if (FromFront(a.axis, rank) != rank - 1) {
    return InvalidCall(call, absl::StrCat(which, verb, "the last axis; transpose first"));
  }
  const Shape& x = call.in[0].shape;
  const std::string fault = MaskFault(mask, x[-2], x[-1]);
  return fault.empty() ? absl::OkStatus() : InvalidCall(call, fault);
}

// A gradient's inputs y and dy are alike, and so is dx.
absl::Status InferGrad(const OpCall& call, Specs& out) {
  if (call.in[0] != call.in[1]) return InvalidCall(call, "y and dy differ", "y dy");
  out = {call.in[0]};
  return absl::OkStatus();
}

absl::Status InferSoftmax(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckSoftmax(call, 1));
  out = {call.in[0]};
  return absl::OkStatus();
}
absl::Status InferSoftmaxGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckSoftmax(call, 2));
  return InferGrad(call, out);
}
absl::Status InferLogSoftmax(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckAxis(call, call.As<LogSoftmaxAttrs>().axis, 1));
  out = {call.in[0]};
  return absl::OkStatus();
}
absl::Status InferLogSoftmaxGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckAxis(call, call.As<LogSoftmaxAttrs>().axis, 2));
  return InferGrad(call, out);
}

// Elements and rows of a call; no rows when there are no elements.
struct Extent {
  Count elements, rows;
};
Extent ExtentOf(const OpCall& call, int axis) {
  const TensorSpec& x = call.in[0];
  const int64_t n = x.shape[axis];
  return {x.numel(), n == 0 ? 0 : x.numel() / n};
}

Cost PriceSoftmax(const OpCall& call) {
  const auto& a = call.As<SoftmaxAttrs>();
  const auto [elements, rows] = ExtentOf(call, a.axis);
  return {.other = (a.scale == 1 ? 4 : 5) * elements - 2 * rows, .transcendental = elements};
}
Cost PriceSoftmaxGrad(const OpCall& call) {
  const auto& a = call.As<SoftmaxAttrs>();
  const auto [elements, rows] = ExtentOf(call, a.axis);
  return {.other = (a.scale == 1 ? 4 : 5) * elements - rows};
}
Cost PriceLogSoftmax(const OpCall& call) {
  const auto [elements, rows] = ExtentOf(call, call.As<LogSoftmaxAttrs>().axis);
  return {.other = 4 * elements - 2 * rows, .transcendental = elements + rows};
}
Cost PriceLogSoftmaxGrad(const OpCall& call) {
  const auto [elements, rows] = ExtentOf(call, call.As<LogSoftmaxAttrs>().axis);
  return {.other = 3 * elements - rows, .transcendental = elements};
}

// The range of every query, where it does not follow from its number alone.
int64_t SoftmaxScratch(const OpCall& call) {
  if (call.As<SoftmaxAttrs>().documents.empty()) return 0;
  return call.in[0].shape[-2] * static_cast<int64_t>(sizeof(KeyRange));
}

SoftmaxRows RowsOf(const TensorSpec& x, int axis) {
  SoftmaxRows s{.dtype = x.dtype};
  axis = FromFront(axis, x.rank());
  for (int a = 0; a < axis; ++a) s.outer *= x.shape[a];
  s.n = x.shape[axis];
  for (int a = axis + 1; a < x.rank(); ++a) s.inner *= x.shape[a];
  return s;
}
// The range of every query into the scratch, wherever that is.
absl::Status PutVisibleKeys(const KernelArgs& k, const SoftmaxRows& s) {
  const Device device = k.in[0]->device();
  if (device.kind == DeviceKind::kCpu) {
    FillVisibleKeys(s.mask, s.queries, s.n, static_cast<KeyRange*>(k.scratch));
    return absl::OkStatus();
  }
  std::vector<KeyRange> ranges(static_cast<size_t>(s.queries));
  FillVisibleKeys(s.mask, s.queries, s.n, ranges.data());
  return ExistingBackend(device).CopyIn(k.scratch, ranges.data(),
                                        s.queries * static_cast<int64_t>(sizeof(KeyRange)));
}

absl::StatusOr<SoftmaxRows> SoftmaxRowsOf(const KernelArgs& k) {
  const auto& a = k.As<SoftmaxAttrs>();
  const TensorSpec& x = k.in[0]->spec();
  SoftmaxRows s = RowsOf(x, a.axis);
  s.scale = a.scale;
  if (!a.mask().hides()) return s;
  s.mask = a.mask();
  s.queries = x.shape[-2];
  if (k.scratch != nullptr) {
    s.ranges = static_cast<KeyRange*>(k.scratch);
    TALLY_RETURN_IF_ERROR(PutVisibleKeys(k, s));
  }
  return s;
}
SoftmaxRows LogSoftmaxRowsOf(const KernelArgs& k) {
  SoftmaxRows s = RowsOf(k.in[0]->spec(), k.As<LogSoftmaxAttrs>().axis);
  s.log = true;
  return s;
}

bool OnCpu(const KernelArgs& k) { return k.in[0]->device().kind == DeviceKind::kCpu; }

GpuSoftmax ForGpu(const SoftmaxRows& s) {
  return {.dtype = s.dtype,
          .outer = s.outer,
          .n = s.n,
          .inner = s.inner,
          .scale = s.scale,
          .queries = s.queries,
          .causal = s.mask.causal,
          .window = s.mask.window,
          .ranges = s.ranges,
          .log = s.log};
}

absl::Status RunRows(const KernelArgs& k, absl::StatusOr<SoftmaxRows> rows) {
  if (!rows.ok()) return rows.status();
  if (k.in[0]->numel() == 0) return absl::OkStatus();
  const void* const x = k.in[0]->raw();
  void* const y = k.out[0].raw();
  if (!OnCpu(k)) {
    return OnGpu(k.out[0].device(),
                 [&](const GpuCall& call) { return LaunchSoftmax(call, ForGpu(*rows), x, y); });
  }
  RunSoftmaxRows(*rows, x, y);
  return absl::OkStatus();
}
absl::Status RunGradRows(const KernelArgs& k, absl::StatusOr<SoftmaxRows> rows) {
  if (!rows.ok()) return rows.status();
  if (k.in[0]->numel() == 0) return absl::OkStatus();
  const void *const y = k.in[0]->raw(), *const dy = k.in[1]->raw();
  void* const dx = k.out[0].raw();
  if (!OnCpu(k)) {
    return OnGpu(k.out[0].device(), [&](const GpuCall& call) {
      return LaunchSoftmaxGrad(call, ForGpu(*rows), y, dy, dx);
    });
  }
  RunSoftmaxGradRows(*rows, y, dy, dx);
  return absl::OkStatus();
}
absl::Status RunSoftmax(const KernelArgs& k) { return RunRows(k, SoftmaxRowsOf(k)); }
absl::Status RunSoftmaxGrad(const KernelArgs& k) { return RunGradRows(k, SoftmaxRowsOf(k)); }
absl::Status RunLogSoftmax(const KernelArgs& k) { return RunRows(k, LogSoftmaxRowsOf(k)); }
absl::Status RunLogSoftmaxGrad(const KernelArgs& k) { return RunGradRows(k, LogSoftmaxRowsOf(k)); }

// dx = scale (dy - sum(dy y)) y.
Tensors GradSoftmax(const GradArgs& g) {
  const auto& a = g.As<SoftmaxAttrs>();
  const Tensor& y = g.out(0);
  if (!g.create_graph()) return {Apply(kSoftmaxGrad, {y, g.dy()}, a)};
  const Tensor dx = Mul(Sub(g.dy(), Sum(Mul(g.dy(), y), {a.axis}, true)), y);
  return {a.scale == 1 ? dx : Mul(dx, a.scale)};
}

// dx = dy - e^y sum(dy).
Tensors GradLogSoftmax(const GradArgs& g) {
  const auto& a = g.As<LogSoftmaxAttrs>();
  const Tensor& y = g.out(0);
  if (!g.create_graph()) return {Apply(kLogSoftmaxGrad, {y, g.dy()}, a)};
  return {Sub(g.dy(), Mul(Exp(y), Sum(g.dy(), {a.axis}, true)))};
}

}  // namespace

constinit const OpDef kSoftmax = {
    .name = "softmax",
    .attrs = SoftmaxAttrs::Fields,
    .infer = InferSoftmax,
    .cost = PriceSoftmax,
    .scratch = SoftmaxScratch,
    .kernel = {.cpu = RunSoftmax, .cuda = RunSoftmax},
    .grads = {{.of = {0}, .reads = Out(0), .fn = GradSoftmax}},
};

constinit const OpDef kSoftmaxGrad = {
    .name = "softmax_grad",
    .attrs = SoftmaxAttrs::Fields,
    .infer = InferSoftmaxGrad,
    .cost = PriceSoftmaxGrad,
    .scratch = SoftmaxScratch,
    .kernel = {.cpu = RunSoftmaxGrad, .cuda = RunSoftmaxGrad},
};

constinit const OpDef kLogSoftmax = {
    .name = "log_softmax",
    .attrs = LogSoftmaxAttrs::Fields,
    .infer = InferLogSoftmax,
    .cost = PriceLogSoftmax,
    .kernel = {.cpu = RunLogSoftmax, .cuda = RunLogSoftmax},
    .grads = {{.of = {0}, .reads = Out(0), .fn = GradLogSoftmax}},
};

constinit const OpDef kLogSoftmaxGrad = {
    .name = "log_softmax_grad",
    .attrs = LogSoftmaxAttrs::Fields,
    .infer = InferLogSoftmaxGrad,
    .cost = PriceLogSoftmaxGrad,
    .kernel = {.cpu = RunLogSoftmaxGrad, .cuda = RunLogSoftmaxGrad},
};

Tensor Softmax(const Tensor& x, const SoftmaxOptions& options) {
  return Apply(
      kSoftmax, {x},
      SoftmaxAttrs{options.axis, options.scale, options.causal, options.window, options.documents});
}
Tensor LogSoftmax(const Tensor& x, int axis) {
  return Apply(kLogSoftmax, {x}, LogSoftmaxAttrs{axis});
}

OpFamily SoftmaxOps() {
  static const OpDef* const kOps[] = {&kSoftmax, &kSoftmaxGrad, &kLogSoftmax, &kLogSoftmaxGrad};
  return kOps;
}

}  // namespace tally
