#include "tally/ops/update.h"

#include "tally/ops/apply.h"
#include "tally/ops/binary_loops.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/copy_launch.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/elementwise_launch.h"

namespace tally {

absl::Span<const AttrField> ValueAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ValueAttrs, value)};
  return kFields;
}

namespace {

Cost NoCost(const OpCall&) { return {}; }
Cost OnePerElement(const OpCall& call) { return internal::PerElement(call, 1, 0); }

absl::Status InferPair(const OpCall& call, const char* names) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(internal::WantOneDType(call, 0, 2, names));
  if (call.in[0].shape != call.in[1].shape) return InvalidCall(call, "shapes differ", names);
  return absl::OkStatus();
}

// ---- add_

absl::Status InferAdd(const OpCall& call, Specs&) {
  TALLY_RETURN_IF_ERROR(InferPair(call, "acc g"));
  return internal::WantFloat(call, 0, "acc g");
}

absl::Status AddKernel(const KernelArgs& args) {
  const internal::ElementwiseInput in[] = {{args.in[0]}, {args.in[1]}};
  internal::RunFloat(LoopsOf(internal::BinaryRow::kAdd).floats, in, args.out[0]);
  return absl::OkStatus();
}

absl::Status AddOnGpu(const KernelArgs& args) {
  const Tensor& acc = args.out[0];
  if (acc.contiguous()) {
    return internal::RunOnGpu(internal::LaunchBinary, internal::BinaryRow::kAdd, acc.dtype(),
                              {{args.in[0]}, {args.in[1]}}, args.out);
  }
  if (acc.numel() == 0) return absl::OkStatus();
  return OnGpu(acc.device(), [&](const GpuCall& call) {
    return internal::LaunchAddTo(call, internal::PairOf(acc, args.in[1]), acc.dtype());
  });
}

const OpDef kAddInPlace = {
    .name = "add_",
    .kind = OpKind::kUpdate,
    .infer = InferAdd,
    .cost = OnePerElement,
    .kernel = {.cpu = AddKernel, .cuda = AddOnGpu},
    .strided = {0, 1},
    .writes = {0},
};

// ---- scale_

absl::Status InferScale(const OpCall& call, Specs&) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  return internal::WantFloat(call, 0, "x");
}

absl::Status ScaleKernel(const KernelArgs& args) {
  const internal::ElementwiseInput in[] = {{args.in[0]}, {nullptr, args.As<ValueAttrs>().value}};
  internal::RunFloat(LoopsOf(internal::BinaryRow::kMul).floats, in, args.out[0]);
  return absl::OkStatus();
}

absl::Status ScaleOnGpu(const KernelArgs& args) {
  const Tensor& x = args.out[0];
  const double value = args.As<ValueAttrs>().value;
  if (x.contiguous()) {
    return internal::RunOnGpu(internal::LaunchBinary, internal::BinaryRow::kMul, x.dtype(),
                              {{args.in[0]}, {nullptr, value}}, args.out);
  }
  if (x.numel() == 0) return absl::OkStatus();
  return OnGpu(x.device(), [&](const GpuCall& call) {
    return internal::LaunchScale(call, internal::PairOf(x, nullptr), x.dtype(), value);
  });
}

const OpDef kScaleInPlace = {
    .name = "scale_",
    .kind = OpKind::kUpdate,
    .attrs = ValueAttrs::Fields,
    .infer = InferScale,
    .cost = OnePerElement,
    .kernel = {.cpu = ScaleKernel, .cuda = ScaleOnGpu},
    .strided = {0},
    .writes = {0},
};

// ---- fill_

absl::Status InferFill(const OpCall& call, Specs&) { return WantInputs(call, 1); }

absl::Status FillKernel(const KernelArgs& args) {
  internal::FillElements(args.out[0], args.As<ValueAttrs>().value);
  return absl::OkStatus();
}

absl::Status FillKernelOnGpu(const KernelArgs& args) {
  return internal::FillOnGpu(args.out[0], args.As<ValueAttrs>().value);
}

const OpDef kFillInPlace = {
    .name = "fill_",
    .kind = OpKind::kUpdate,
    .attrs = ValueAttrs::Fields,
    .infer = InferFill,
    .cost = NoCost,
    .kernel = {.cpu = FillKernel, .cuda = FillKernelOnGpu},
    .strided = {0},
    .writes = {0},
    .overwrites = {0},
};

// ---- copy_

absl::Status InferCopy(const OpCall& call, Specs&) { return InferPair(call, "dst src"); }

absl::Status CopyKernel(const KernelArgs& args) {
  internal::CopyElements(args.out[0], *args.in[1]);
  return absl::OkStatus();
}

absl::Status CopyKernelOnGpu(const KernelArgs& args) {
  return internal::CopyOnGpu(args.out[0], *args.in[1]);
}

const OpDef kCopyInPlace = {
    .name = "copy_",
    .kind = OpKind::kUpdate,
    .infer = InferCopy,
    .cost = NoCost,
    .kernel = {.cpu = CopyKernel, .cuda = CopyKernelOnGpu},
    .strided = {0, 1},
    .writes = {0},
    .overwrites = {0},
};

// `source`, or a copy where writing `target` could change it before it is read.
Tensor Unaliased(const Tensor& target, const Tensor& source) {
  if (!target.defined() || !source.defined() || !SharesStorage(target, source)) return source;
  const bool same_view = target.spec() == source.spec() && target.offset() == source.offset() &&
                         target.strides() == source.strides();
  return same_view ? source : CopyOf(source);
}

}  // namespace

void AddInPlace(const Tensor& acc, const Tensor& g) {
  Apply(kAddInPlace, {acc, Unaliased(acc, g)});
}
void FillInPlace(const Tensor& x, double value) { Apply(kFillInPlace, {x}, ValueAttrs{value}); }
void CopyInPlace(const Tensor& dst, const Tensor& src) {
  Apply(kCopyInPlace, {dst, Unaliased(dst, src)});
}
void ScaleInPlace(const Tensor& x, double value) { Apply(kScaleInPlace, {x}, ValueAttrs{value}); }

OpFamily UpdateOps() {
  static const OpDef* const kOps[] = {&kAddInPlace, &kScaleInPlace, &kFillInPlace, &kCopyInPlace};
  return kOps;
}

}  // namespace tally
