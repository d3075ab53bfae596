#include "tally/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy_launch.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/rope_gpu.h"
#include "tally/ops/rope_rows.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> RopeAttrs::Fields() {
  static constexpr const char* kScalings[] = {"none", "linear", "llama3", nullptr};
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(RopeAttrs, theta),
      TALLY_ATTR(RopeAttrs, axis),
      TALLY_ATTR_OPTIONAL(RopeAttrs, dim),
      TALLY_ATTR_OPTIONAL(RopeAttrs, interleaved),
      TALLY_ATTR_OPTIONAL(RopeAttrs, inverse),
      TALLY_ATTR_OPTIONAL(RopeAttrs, offset),
      TALLY_ATTR_OPTIONAL(RopeAttrs, documents),
      {"scaling", AttrType::kEnum, offsetof(RopeAttrs, scaling), kScalings, true},
      TALLY_ATTR_OPTIONAL(RopeAttrs, factor),
      TALLY_ATTR_OPTIONAL(RopeAttrs, low_freq_factor),
      TALLY_ATTR_OPTIONAL(RopeAttrs, high_freq_factor),
      TALLY_ATTR_OPTIONAL(RopeAttrs, original_context),
  };
  return kFields;
}

double RopeFrequency(const RopeAttrs& a, int64_t pair, int64_t pairs) {
  const double f = std::pow(a.theta, -static_cast<double>(pair) / static_cast<double>(pairs));
  if (a.scaling == RopeScaling::kNone) return f;
  if (a.scaling == RopeScaling::kLinear) return f / a.factor;
  const double turns = a.original_context * f / 6.283185307179586477;  // in the first context
  if (turns > a.high_freq_factor) return f;
  if (turns < a.low_freq_factor) return f / a.factor;
  const double s = (turns - a.low_freq_factor) / (a.high_freq_factor - a.low_freq_factor);
  return (1 - s) * f / a.factor + s * f;
}

namespace {

using namespace internal;  // NOLINT: checks

constexpr char kName[] = "x";

bool Positive(double v) { return v > 0 && std::isfinite(v); }

absl::Status CheckScaling(const OpCall& call) {
  const auto& a = call.As<RopeAttrs>();
  if (!Positive(a.theta)) {
    return InvalidCall(call, absl::StrCat("theta is ", a.theta, "; it is above 0"), kName);
  }
  if (a.scaling == RopeScaling::kNone) return absl::OkStatus();
  if (!Positive(a.factor)) {
    return InvalidCall(call, absl::StrCat("the factor is ", a.factor, "; it is above 0"), kName);
  }
  if (a.scaling == RopeScaling::kLinear) return absl::OkStatus();
  if (!Positive(a.low_freq_factor) || !Positive(a.high_freq_factor) ||
      !(a.high_freq_factor > a.low_freq_factor)) {
    return InvalidCall(call,
                       absl::StrCat("llama3 wants 0 < low_freq_factor < high_freq_factor, got ",
                                    a.low_freq_factor, " and ", a.high_freq_factor),
                       kName);
  }
  if (a.original_context > 0) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("original_context is ", a.original_context), kName);
}

absl::Status CheckPositions(const OpCall& call, int64_t count) {
  const auto& a = call.As<RopeAttrs>();
  constexpr int64_t kMost = int64_t{1} << 31;
  if (a.offset < 0 || a.offset > kMost || count > kMost - a.offset) {
    return InvalidCall(
        call, absl::StrCat("the offset is ", a.offset, "; positions lie in [0, 2^31]"), kName);
  }
  if (a.documents.empty()) return absl::OkStatus();
  int64_t total = 0;
  for (const int64_t length : a.documents.list()) {
    if (length < 0) return InvalidCall(call, absl::StrCat("a document of ", length), kName);
    if (length > count - total) {  // no sum can overflow
      total = -1;
      break;
    }
    total += length;
  }
  if (total == count) return absl::OkStatus();
  return InvalidCall(
      call, absl::StrCat("the documents' lengths do not add up to the ", count, " positions"),
      kName);
}

absl::Status InferRope(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantFloat(call, 0, kName));
  const auto& a = call.As<RopeAttrs>();
  const TensorSpec& x = call.in[0];
  int axis = 0;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, a.axis, x.rank(), &axis));
  if (axis == x.rank() - 1) {
    return InvalidCall(call, "the last axis holds the features; positions are another", kName);
  }
  const int64_t dim = a.dim == 0 ? x.shape[-1] : a.dim;
  if (dim < 0 || dim > x.shape[-1] || dim % 2 != 0) {
    return InvalidCall(call,
                       absl::StrCat("cannot turn ", dim,
                                    " features in pairs; dim is even and within the last axis"),
                       kName);
  }
  TALLY_RETURN_IF_ERROR(CheckPositions(call, x.shape[axis]));
  TALLY_RETURN_IF_ERROR(CheckScaling(call));
  out = {x};
  return absl::OkStatus();
}

int64_t RotatedDim(const RopeAttrs& a, const TensorSpec& x) {
  return a.dim == 0 ? x.shape[-1] : a.dim;
}
// Positions that differ: those of the longest document.
int64_t DistinctPositions(const RopeAttrs& a, const TensorSpec& x) {
  if (a.documents.empty()) return x.shape[a.axis];
  int64_t longest = 0;
  for (const int64_t length : a.documents.list()) longest = std::max(longest, length);
  return longest;
}

Cost PriceRope(const OpCall& call) {
  const auto& a = call.As<RopeAttrs>();
  const TensorSpec& x = call.in[0];
  if (x.numel() == 0) return {};
  const Count dim = RotatedDim(a, x), positions = DistinctPositions(a, x);
  return {.other = 3 * (x.numel() / x.shape[-1]) * dim + positions * dim / 2,
          .transcendental = positions * dim};
}

RopeTable TableOf(const RopeAttrs& a, const TensorSpec& x) {
  return RopeTable(DistinctPositions(a, x), RotatedDim(a, x) / 2);
}

int64_t RopeScratch(const OpCall& call) {
  const TensorSpec& x = call.in[0];
  return x.numel() == 0 ? 0 : TableOf(call.As<RopeAttrs>(), x).bytes();
}

RopeAxes AxesOf(const Tensor& x, int begin, int end) {
  static_assert(RopeAxes::kMaxAxes == kMaxRank);
  RopeAxes axes;
  for (int d = begin; d < end; ++d) {
    if (x.dim(d) == 1) continue;
    axes.dims[axes.rank] = x.dim(d);
    axes.strides[axes.rank++] = x.strides()[d];
    axes.count *= x.dim(d);
  }
  return axes;
}

absl::Status RunRope(const KernelArgs& k) {
  const auto& a = k.As<RopeAttrs>();
  const Tensor& x = *k.in[0];
  if (x.numel() == 0) return absl::OkStatus();
  RopeTable table = TableOf(a, x.spec());
  table.data = static_cast<double*>(k.scratch);
  for (int64_t i = 0; i < table.pairs; ++i) {
    table.Frequencies()[i] = RopeFrequency(a, i, table.pairs);
  }
  FillRopeTable(table, a.offset);
  const int axis = FromFront(a.axis, x.rank());
  RunRopeRows({.dtype = x.dtype(),
               .outer = AxesOf(x, 0, axis),
               .inner = AxesOf(x, axis + 1, x.rank() - 1),
               .positions = x.dim(axis),
               .position_stride = x.strides()[axis],
               .features = x.shape()[-1],
               .pairs = table.pairs,
               .interleaved = a.interleaved,
               .inverse = a.inverse,
               .documents = a.documents.list(),
               .x = x.raw(),
               .y = k.out[0].raw()},
              table);
  return absl::OkStatus();
}

// The features that do not turn.
Tensor Rest(const Tensor& x, int64_t turned) {
  const TensorSpec spec{x.dtype(), x.shape().With(x.rank() - 1, x.shape()[-1] - turned)};
  return x.Alias(spec, x.strides(), x.offset() + turned);
}

// The frequencies are the host's; sines are made of them on the GPU.
absl::Status RopeOnGpu(const KernelArgs& k) {
  const auto& a = k.As<RopeAttrs>();
  const Tensor &x = *k.in[0], &y = k.out[0];
  if (x.numel() == 0) return absl::OkStatus();
  RopeTable table = TableOf(a, x.spec());
  if (table.pairs > 0) {
    table.data = static_cast<double*>(k.scratch);
    std::vector<double> frequencies(table.pairs);
    for (int64_t i = 0; i < table.pairs; ++i) frequencies[i] = RopeFrequency(a, i, table.pairs);
    TALLY_RETURN_IF_ERROR(ExistingBackend(x.device())
                              .CopyIn(table.Frequencies(), frequencies.data(),
                                      table.pairs * static_cast<int64_t>(sizeof(double))));
    const int axis = FromFront(a.axis, x.rank());
    const GpuRope rope{.dtype = x.dtype(),
                       .outer = AxesOf(x, 0, axis),
                       .inner = AxesOf(x, axis + 1, x.rank() - 1),
                       .positions = x.dim(axis),
                       .position_stride = x.strides()[axis],
                       .features = x.shape()[-1],
                       .pairs = table.pairs,
                       .interleaved = a.interleaved,
                       .inverse = a.inverse,
                       .x = x.raw(),
                       .y = y.raw()};
    const absl::Span<const int64_t> documents = a.documents.list();
    TALLY_RETURN_IF_ERROR(OnGpu(x.device(), [&](const GpuCall& call) {
      return LaunchRope(call, rope, table, a.offset, documents.data(),
                        static_cast<int64_t>(documents.size()));
    }));
  }
  const int64_t turned = 2 * table.pairs;
  return turned == x.shape()[-1] ? absl::OkStatus() : CopyOnGpu(Rest(y, turned), Rest(x, turned));
}

bool UnitLastStride(const Tensor& in, int, const Attrs&) {
  return in.rank() > 0 && (in.strides()[in.rank() - 1] == 1 || in.shape()[-1] <= 1);
}

// Turning back.
Tensors GradRope(const GradArgs& g) {
  RopeAttrs attrs = g.As<RopeAttrs>();
  attrs.inverse = !attrs.inverse;
  return {Apply(kRope, {g.dy()}, attrs)};
}

int32_t Checked(const char* what, int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(value);
  }
  ThrowInvalid(absl::StrCat("rope: ", what, " is ", value));
}

}  // namespace

constinit const OpDef kRope = {
    .name = "rope",
    .attrs = RopeAttrs::Fields,
    .infer = InferRope,
    .cost = PriceRope,
    .scratch = RopeScratch,
    .kernel = {.cpu = RunRope, .cuda = RopeOnGpu},
    .strided = {0},
    .strided_ok = UnitLastStride,
    .grads = {{.of = {0}, .reads = kNothing, .fn = GradRope}},
};

Tensor Rope(const Tensor& x, const RopeOptions& o) {
  RopeAttrs a{.theta = o.theta,
              .offset = o.offset,
              .documents = o.documents,
              .dim = Checked("dim", o.dim),
              .axis = o.axis,
              .interleaved = o.interleaved,
              .scaling = o.scaling};
  if (o.scaling != RopeScaling::kNone) a.factor = o.factor;
  if (o.scaling == RopeScaling::kLlama3) {
    a.low_freq_factor = o.low_freq_factor;
    a.high_freq_factor = o.high_freq_factor;
    a.original_context = Checked("original_context", o.original_context);
  }
  return Apply(kRope, {x}, a);
}

OpFamily RopeOps() {
  static const OpDef* const kOps[] = {&kRope};
  return kOps;
}

}  // namespace tally
