#include "tally/ops/cross_entropy.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/cross_entropy_gpu.h"
#include "tally/ops/cross_entropy_rows.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/rows.h"
#include "tally/ops/softmax.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {
namespace {
const char* const kReductionNames[] = {"mean", "sum", nullptr};
}  // namespace

absl::Span<const AttrField> CrossEntropyAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(CrossEntropyAttrs, ignore_index),
      TALLY_ATTR_ENUM(CrossEntropyAttrs, reduction, kReductionNames),
      TALLY_ATTR(CrossEntropyAttrs, label_smoothing)};
  return kFields;
}
absl::Span<const AttrField> OneHotAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(OneHotAttrs, classes),
                                          TALLY_ATTR(OneHotAttrs, ignore_index),
                                          TALLY_ATTR(OneHotAttrs, dtype)};
  return kFields;
}

namespace {

const char kNames[] = "logits targets lse dy";

absl::Status CheckOperands(const OpCall& call, int inputs) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, inputs));
  TALLY_RETURN_IF_ERROR(WantFloat(call, kNames));
  const TensorSpec &logits = call.in[0], &targets = call.in[1];
  if (targets.dtype != DType::kI64 && targets.dtype != DType::kI32) {
    return InvalidCall(call, "targets are class indices, i64 or i32", kNames);
  }
  if (logits.rank() < 1) return InvalidCall(call, "wants logits [..., classes]", kNames);
  if (logits.shape[-1] == 0) return InvalidCall(call, "there are no classes", kNames);
  if (targets.shape != logits.shape.Without(logits.rank() - 1)) {
    return InvalidCall(call, "targets are shaped like the logits without their last axis", kNames);
  }
  const double smoothing = call.As<CrossEntropyAttrs>().label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    return InvalidCall(call, absl::StrCat("label_smoothing ", smoothing, " is outside [0, 1]"),
                       kNames);
  }
  return absl::OkStatus();
}

absl::Status InferCrossEntropy(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckOperands(call, 2));
  const DType stat = StatDType(call.in[0].dtype);
  out = {TensorSpec{stat, Shape()}, TensorSpec{stat, call.in[1].shape}};
  return absl::OkStatus();
}

absl::Status InferCrossEntropyGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(CheckOperands(call, 4));
  const DType stat = StatDType(call.in[0].dtype);
  if (call.in[2] != TensorSpec{stat, call.in[1].shape} || call.in[3] != TensorSpec{stat, Shape()}) {
    return InvalidCall(call, absl::StrCat("wants ", Name(stat), " lse per row and a scalar dy"),
                       kNames);
  }
  out = {call.in[0]};
  return absl::OkStatus();
}

absl::Status InferOneHot(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  const auto& a = call.As<OneHotAttrs>();
  const TensorSpec& targets = call.in[0];
  if (targets.dtype != DType::kI64 && targets.dtype != DType::kI32) {
    return InvalidCall(call, "targets are class indices, i64 or i32", "targets");
  }
  if (a.classes < 1) return InvalidCall(call, "there are no classes", "targets");
  if (!IsComputingFloat(a.dtype)) {
    return InvalidCall(call, absl::StrCat("makes f64, f32, bf16 or f16, not ", Name(a.dtype)),
                       "targets");
  }
  if (targets.rank() == kMaxRank) return InvalidCall(call, "has no axis left", "targets");
  absl::InlinedVector<int64_t, kMaxRank> dims(targets.shape.dims().begin(),
                                              targets.shape.dims().end());
  dims.push_back(a.classes);
  TALLY_RETURN_IF_ERROR(SetShape(call, dims, out));
  out[0].dtype = a.dtype;
  return absl::OkStatus();
}

Cost PriceCrossEntropy(const OpCall& call) {
  const auto& a = call.As<CrossEntropyAttrs>();
  const Count n = call.in[1].numel(), c = call.in[0].shape[-1];
  Count other = n * 3 * c + (n > 0 ? n - 1 : 0);
  if (a.label_smoothing != 0) other += n * (c + 2);
  if (a.reduction == Reduction::kMean) other += 1;
  return {.other = other, .transcendental = n * (c + 1)};
}

Cost PriceCrossEntropyGrad(const OpCall& call) {
  const auto& a = call.As<CrossEntropyAttrs>();
  const Count n = call.in[1].numel(), c = call.in[0].shape[-1];
  Count other = n * (2 * c + 1);
  if (a.label_smoothing != 0) other += n * c;
  if (a.reduction == Reduction::kMean) other += 1;
  return {.other = other, .transcendental = n * c};
}

Cost PriceNothing(const OpCall&) { return {}; }

// Losses of the rows, in double.
int64_t CrossEntropyScratch(const OpCall& call) {
  return call.in[1].numel() * static_cast<int64_t>(sizeof(double));
}

ClassIds IdsOf(const Tensor& targets) { return {targets.raw(), targets.dtype() == DType::kI64}; }

absl::Status CheckTargets(const Tensor& targets, int64_t classes, int64_t ignore_index) {
  const ClassIds ids = IdsOf(targets);
  for (int64_t i = 0; i < targets.numel(); ++i) {
    const int64_t id = ids[i];
    if (id == ignore_index || (id >= 0 && id < classes)) continue;
    return absl::OutOfRangeError(absl::StrCat("target of row ", i, " is ", id,
                                              "; classes are 0 to ", classes - 1,
                                              ", ignore_index is ", ignore_index));
  }
  return absl::OkStatus();
}

CrossEntropyRows RowsOf(const KernelArgs& k) {
  const auto& a = k.As<CrossEntropyAttrs>();
  const Tensor &logits = *k.in[0], &targets = *k.in[1];
  return {.dtype = logits.dtype(),
          .rows = targets.numel(),
          .classes = logits.shape()[-1],
          .ignore_index = a.ignore_index,
          .smoothing = a.label_smoothing,
          .logits = logits.raw(),
          .targets = IdsOf(targets)};
}

int64_t CountRows(const CrossEntropyRows& rows) {
  int64_t count = 0;
  for (int64_t i = 0; i < rows.rows; ++i) count += rows.targets[i] != rows.ignore_index;
  return count;
}

bool OnCpu(const KernelArgs& k) { return k.out[0].device().kind == DeviceKind::kCpu; }

absl::Status RunCrossEntropy(const KernelArgs& k) {
  const CrossEntropyRows rows = RowsOf(k);
  if (!OnCpu(k)) {
    const bool mean = k.As<CrossEntropyAttrs>().reduction == Reduction::kMean;
    return OnGpu(k.out[0].device(), "cross_entropy", [&](const GpuCall& call) {
      return LaunchCrossEntropy(call, rows, mean, k.out[1].raw(), static_cast<double*>(k.scratch),
                                k.out[0].raw());
    });
  }
  TALLY_RETURN_IF_ERROR(CheckTargets(*k.in[1], rows.classes, rows.ignore_index));
  double* losses = static_cast<double*>(k.scratch);
  RunCrossEntropyRows(rows, k.out[1].raw(), losses);
  double loss = 0;
  for (int64_t i = 0; i < rows.rows; ++i) loss += losses[i];
  if (k.As<CrossEntropyAttrs>().reduction == Reduction::kMean) {
    loss /= static_cast<double>(CountRows(rows));
  }
  VisitFloat(k.out[0].dtype(), [&](auto tag) {
    using C = ComputeType<typename decltype(tag)::type>;
    *k.Out<C>(0) = static_cast<C>(loss);
  });
  return absl::OkStatus();
}

absl::Status RunCrossEntropyGrad(const KernelArgs& k) {
  const CrossEntropyRows rows = RowsOf(k);
  if (!OnCpu(k)) {
    const bool mean = k.As<CrossEntropyAttrs>().reduction == Reduction::kMean;
    return OnGpu(k.out[0].device(), "cross_entropy_grad", [&](const GpuCall& call) {
      return LaunchCrossEntropyGrad(call, rows, mean, k.in[2]->raw(), k.in[3]->raw(),
                                    k.out[0].raw());
    });
  }
  TALLY_RETURN_IF_ERROR(CheckTargets(*k.in[1], rows.classes, rows.ignore_index));
  double scale = 0;
  VisitFloat(k.in[3]->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    scale = static_cast<double>(Load(*k.In<T>(3)));
  });
  if (k.As<CrossEntropyAttrs>().reduction == Reduction::kMean) {
    scale /= static_cast<double>(CountRows(rows));
  }
  RunCrossEntropyGradRows(rows, k.in[2]->raw(), scale, k.out[0].raw());
  return absl::OkStatus();
}

absl::Status RunOneHot(const KernelArgs& k) {
  const auto& a = k.As<OneHotAttrs>();
  if (!OnCpu(k)) {
    const CrossEntropyRows rows{.dtype = a.dtype,
                                .rows = k.in[0]->numel(),
                                .classes = a.classes,
                                .ignore_index = a.ignore_index,
                                .targets = IdsOf(*k.in[0])};
    return OnGpu(k.out[0].device(), "one_hot",
                 [&](const GpuCall& call) { return LaunchOneHot(call, rows, k.out[0].raw()); });
  }
  TALLY_RETURN_IF_ERROR(CheckTargets(*k.in[0], a.classes, a.ignore_index));
  const ClassIds ids = IdsOf(*k.in[0]);
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* y = k.Out<T>(0);
    const T one = Store<T>(1);
    ForRows(k.in[0]->numel(), a.classes, [&](int64_t begin, int64_t end) {
      std::fill(y + begin * a.classes, y + end * a.classes, T());
      for (int64_t i = begin; i < end; ++i) {
        if (ids[i] != a.ignore_index) y[i * a.classes + ids[i]] = one;
      }
    });
  });
  return absl::OkStatus();
}

// The gradient in ops that have gradients. With p = softmax(x), h the one-hot targets (0 in ignored
// rows) and m the rows that count: dx = (p - (1 - e) h - e / C) m dy / (how many count).
Tensor ComposedGrad(const GradArgs& g, const CrossEntropyAttrs& a) {
  const DType dtype = g.in_spec(0).dtype, stat = StatDType(dtype);
  const int64_t classes = g.in_spec(0).shape[-1];
  const Tensor x = dtype == stat ? g.in(0) : Cast(g.in(0), stat);
  const Tensor hot = OneHot(g.in(1), {classes, a.ignore_index, stat});
  const Tensor counts = Sum(hot, {-1}, true);
  Tensor aim = hot;
  if (a.label_smoothing != 0) {
    aim = Add(Mul(hot, 1 - a.label_smoothing), a.label_smoothing / static_cast<double>(classes));
  }
  const bool mean = a.reduction == Reduction::kMean;
  const Tensor weight = mean ? Div(g.dy(0), Maximum(Sum(counts), 1)) : g.dy(0);
  const Tensor dx = Mul(Mul(Sub(Softmax(x), aim), counts), weight);
  return dtype == stat ? dx : Cast(dx, dtype);
}

Tensors GradCrossEntropy(const GradArgs& g) {
  const auto& a = g.As<CrossEntropyAttrs>();
  if (g.has_dy(1)) ThrowInvalid("cross_entropy: its second output, lse, has no gradient");
  if (g.create_graph()) return {ComposedGrad(g, a)};
  return {Apply(kCrossEntropyGrad, {g.in(0), g.in(1), g.out(1), g.dy(0)}, a)};
}

}  // namespace

constinit const OpDef kCrossEntropy = {
    .name = "cross_entropy",
    .attrs = CrossEntropyAttrs::Fields,
    .infer = InferCrossEntropy,
    .cost = PriceCrossEntropy,
    .scratch = CrossEntropyScratch,
    .kernel = {.cpu = RunCrossEntropy, .cuda = RunCrossEntropy},
    .grads = {{.of = {0}, .reads = In(0) | In(1) | Out(1), .fn = GradCrossEntropy}},
    .no_gradient = {1},
};

constinit const OpDef kCrossEntropyGrad = {
    .name = "cross_entropy_grad",
    .attrs = CrossEntropyAttrs::Fields,
    .infer = InferCrossEntropyGrad,
    .cost = PriceCrossEntropyGrad,
    .kernel = {.cpu = RunCrossEntropyGrad, .cuda = RunCrossEntropyGrad},
    .no_gradient = {1},
};

constinit const OpDef kOneHot = {
    .name = "one_hot",
    .attrs = OneHotAttrs::Fields,
    .infer = InferOneHot,
    .cost = PriceNothing,
    .kernel = {.cpu = RunOneHot, .cuda = RunOneHot},
    .no_gradient = {0},
};

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options) {
  return Apply(kCrossEntropy, {logits, targets},
               CrossEntropyAttrs{options.ignore_index, options.reduction, options.label_smoothing});
}

Tensor OneHot(const Tensor& targets, const OneHotAttrs& attrs) {
  return Apply(kOneHot, {targets}, attrs);
}

OpFamily CrossEntropyOps() {
  static const OpDef* const kOps[] = {&kCrossEntropy, &kCrossEntropyGrad, &kOneHot};
  return kOps;
}

}  // namespace tally
