#include "tally/ops/apply.h"

#include "absl/strings/str_cat.h"
#include "tally/ops/apply_into.h"
#include "tally/ops/op_table.h"
#include "tally/ops/out_of_memory.h"
#include "tally/ops/recorder.h"
#include "tally/tensor/backend.h"

namespace tally {
namespace {

using Pointers = absl::InlinedVector<const Tensor*, 8>;
using SpecPointers = absl::InlinedVector<const TensorSpec*, 8>;

absl::Status Prefixed(const OpDef& op, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(op.name, ": ", status.message()));
}

Origin OriginOf(Phase phase) {
  switch (phase) {
    case Phase::kForward:
    case Phase::kRecompute:
      return Origin::kActivation;
    case Phase::kBackward:
      return Origin::kGradient;
    case Phase::kOptimizer:
      return Origin::kScratch;
  }
  return Origin::kActivation;
}

absl::Status CheckOperands(const OpDef& op, absl::Span<const TensorArg> in) {
  for (size_t i = 0; i < in.size(); ++i) {
    if (!in[i].tensor->defined()) {
      return absl::InvalidArgumentError(absl::StrCat(op.name, ": input ", i, " is undefined"));
    }
    if (in[i].tensor->device() != in[0].tensor->device()) {
      return absl::FailedPreconditionError(absl::StrCat(op.name, ": operands are on ",
                                                        in[0].tensor->device().ToString(), " and ",
                                                        in[i].tensor->device().ToString()));
    }
  }
  return absl::OkStatus();
}

bool TakesStrides(const OpDef& op, int index, const Tensor& in, const Attrs& attrs) {
  return op.strided.Contains(index) &&
         (op.strided_ok == nullptr || op.strided_ok(in, index, attrs));
}

// For definitions that never passed RegisterOp.
absl::Status IncompleteOp(const OpDef& op) {
  return absl::InvalidArgumentError(
      absl::StrCat(op.name, ": the definition has no ", op.infer == nullptr ? "infer" : "cost"));
}

absl::StatusOr<Tensor> TryCopyOf(const Tensor& x) {
  static const OpDef* const contiguous = FindOp("contiguous");
  TALLY_CHECK(contiguous != nullptr) << "the table has no op 'contiguous'";
  const TensorArg arg(x);
  TALLY_ASSIGN_OR_RETURN(Tensors out, TryApply(*contiguous, absl::MakeConstSpan(&arg, 1)));
  return std::move(out[0]);
}

// Whether some elements of an expanded tensor are one in memory.
bool RepeatsElements(const Tensor& x) {
  for (int a = 0; a < x.rank(); ++a) {
    if (x.strides()[a] == 0 && x.dim(a) > 1) return x.numel() > 0;
  }
  return false;
}

// The copy that stands in `inputs` for an earlier operand that is the same tensor; null: none.
const Tensor* CopyMadeOf(const Tensor& x, absl::Span<const TensorArg> in, const Pointers& inputs) {
  for (size_t j = 0; j < inputs.size(); ++j) {
    if (in[j].tensor->impl() == x.impl() && inputs[j]->impl() != x.impl()) return inputs[j];
  }
  return nullptr;
}

// Inputs as the kernel may take them; copies live in `copies`.
absl::Status MakeKernelInputs(const OpDef& op, absl::Span<const TensorArg> in, const Attrs& attrs,
                              Pointers& inputs, Tensors& copies) {
  inputs.reserve(in.size());
  copies.reserve(in.size());  // `inputs` points into it
  for (size_t i = 0; i < in.size(); ++i) {
    const Tensor& x = *in[i].tensor;
    if (!x.contiguous() && op.writes.Contains(i) && RepeatsElements(x)) {
      return absl::InvalidArgumentError(absl::StrCat(
          op.name, ": input ", i, " (", x.spec().ToString(),
          ") is expanded: one element in memory would be written several times; write its base, or "
          "a copy"));
    }
    if (x.contiguous() || op.kind == OpKind::kView || TakesStrides(op, i, x, attrs)) {
      inputs.push_back(&x);
      continue;
    }
    if (op.writes.Contains(i)) {
      return absl::InvalidArgumentError(absl::StrCat(
          op.name, ": input ", i, " is written in place and has strides; update its base instead"));
    }
    if (const Tensor* copied = CopyMadeOf(x, in, inputs)) {
      inputs.push_back(copied);
      continue;
    }
    TALLY_ASSIGN_OR_RETURN(Tensor copy, TryCopyOf(x));
    copies.push_back(std::move(copy));
    inputs.push_back(&copies.back());
  }
  return absl::OkStatus();
}

absl::Status MakeViews(const OpDef& op, const Attrs& attrs, const Specs& specs, Pointers& inputs,
                       Tensors& copies, Tensors& out) {
  for (size_t j = 0; j < specs.size(); ++j) {
    Strides strides{};
    int64_t offset = 0;
    if (!op.view(*inputs[0], attrs, static_cast<int>(j), specs[j], strides, offset)) {
      TALLY_CHECK(j == 0) << op.name << " refused a view of a contiguous tensor";
      TALLY_ASSIGN_OR_RETURN(Tensor copy, TryCopyOf(*inputs[0]));
      copies.push_back(std::move(copy));
      inputs[0] = &copies.back();
      TALLY_CHECK(op.view(*inputs[0], attrs, 0, specs[0], strides, offset)) << op.name;
    }
    out.push_back(inputs[0]->Alias(specs[j], strides, offset));
  }
  return absl::OkStatus();
}

absl::Status AllocateOutputs(const Specs& specs, Device device, Tensors& out) {
  const Origin origin = OriginOf(CurrentContext().phase);
  for (const TensorSpec& spec : specs) {
    TALLY_ASSIGN_OR_RETURN(Tensor tensor, Tensor::TryEmpty(spec, device, origin));
    out.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

// The outputs that are not there yet.
absl::Status AllocateMissing(const Specs& specs, Device device, Tensors& out) {
  if (out.size() != specs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gives ", specs.size(), " outputs, not ", out.size()));
  }
  const Origin origin = OriginOf(CurrentContext().phase);
  for (size_t j = 0; j < specs.size(); ++j) {
    if (!out[j].defined()) {
      TALLY_ASSIGN_OR_RETURN(out[j], Tensor::TryEmpty(specs[j], device, origin));
    } else if (out[j].spec() != specs[j] || out[j].device() != device || !out[j].contiguous()) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", j, " is ", specs[j].ToString(), " on ", device.ToString(),
                       "; what is to hold it is ", out[j].contiguous() ? "" : "strided ",
                       out[j].spec().ToString(), " on ", out[j].device().ToString()));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeWritten(const OpDef& op, const Pointers& inputs, Tensors& out) {
  if (Recorder* recorder = CurrentContext().recorder) {
    TALLY_RETURN_IF_ERROR(recorder->BeforeUpdate(op, inputs));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (op.writes.Contains(i)) out.push_back(*inputs[i]);
  }
  return absl::OkStatus();
}

// Scratch lives in the record like any storage, on meta too.
class Scratch {
 public:
  ~Scratch() {
    if (storage_ != nullptr) storage_->Unref();
  }
  absl::Status Allocate(int64_t bytes, Device device) {
    TALLY_ASSIGN_OR_RETURN(storage_, Storage::Allocate(bytes, device, Origin::kScratch));
    return absl::OkStatus();
  }
  void* data() const { return storage_ == nullptr ? nullptr : storage_->data(); }

 private:
  Storage* storage_ = nullptr;
};

absl::Status RunKernel(const OpDef& op, Device device, const Attrs& attrs, const Pointers& inputs,
                       const SpecPointers& in_specs, Tensors& out) {
  Scratch scratch;
  if (op.scratch != nullptr) {
    SpecPointers out_specs;
    for (const Tensor& t : out) out_specs.push_back(&t.spec());
    const int64_t bytes = op.scratch({op, SpecRefs(in_specs), SpecRefs(out_specs), attrs});
    if (bytes > 0) TALLY_RETURN_IF_ERROR(scratch.Allocate(bytes, device));
  }
  if (device.is_meta()) return absl::OkStatus();
  const KernelFn kernel = device.kind == DeviceKind::kCpu ? op.kernel.cpu : op.kernel.cuda;
  if (kernel == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("has no kernel on ", device.ToString(),
                                                      "; on meta it can be recorded and priced"));
  }
  return kernel({inputs, absl::MakeSpan(out), attrs, scratch.data()});
}

// Once for each storage written.
void BumpVersions(const Tensors& written) {
  for (size_t i = 0; i < written.size(); ++i) {
    bool seen = false;
    for (size_t j = 0; j < i; ++j) seen |= SharesStorage(written[i], written[j]);
    if (!seen) written[i].storage().BumpVersion();
  }
}

// `out` is empty, or brings outputs of a compute op that are written again.
absl::Status Run(const OpDef& op, Device device, absl::Span<const TensorArg> in, const Attrs& attrs,
                 Tensors& out) {
  if (op.infer == nullptr || (op.cost == nullptr && op.kind != OpKind::kView)) {
    return IncompleteOp(op);
  }
  SpecPointers in_specs;
  in_specs.reserve(in.size());
  for (const TensorArg& arg : in) in_specs.push_back(&arg.tensor->spec());
  Specs specs;
  if (absl::Status s = op.infer({op, SpecRefs(in_specs), SpecRefs(), attrs}, specs); !s.ok()) {
    return Prefixed(op, s);
  }
  Pointers inputs;
  Tensors copies;
  TALLY_RETURN_IF_ERROR(MakeKernelInputs(op, in, attrs, inputs, copies));
  absl::Status status;
  if (op.kind == OpKind::kView) {
    copies.reserve(1);
    status = MakeViews(op, attrs, specs, inputs, copies, out);
  } else {
    status = op.kind == OpKind::kUpdate ? TakeWritten(op, inputs, out)
             : out.empty()              ? AllocateOutputs(specs, device, out)
                                        : AllocateMissing(specs, device, out);
    if (status.ok()) status = RunKernel(op, device, attrs, inputs, in_specs, out);
  }
  if (!status.ok()) return Prefixed(op, internal::WithWhatLives(status));
  if (Recorder* recorder = CurrentContext().recorder) {
    recorder->OnOp(op, attrs, inputs, absl::MakeSpan(out));
  }
  if (op.kind == OpKind::kUpdate) BumpVersions(out);
  return absl::OkStatus();
}

absl::Status RunChecked(const OpDef& op, absl::Span<const TensorArg> in, const Attrs& attrs,
                        Tensors& out) {
  if (in.empty()) return absl::InvalidArgumentError(absl::StrCat(op.name, ": has no inputs"));
  TALLY_RETURN_IF_ERROR(CheckOperands(op, in));
  return Run(op, in[0].tensor->device(), in, attrs, out);
}

}  // namespace

absl::StatusOr<Tensors> TryApply(const OpDef& op, absl::Span<const TensorArg> in,
                                 const Attrs& attrs) {
  Tensors out;
  TALLY_RETURN_IF_ERROR(RunChecked(op, in, attrs, out));
  return out;
}

absl::StatusOr<Tensors> TryApplyOn(Device device, const OpDef& op, const Attrs& attrs) {
  Tensors out;
  TALLY_RETURN_IF_ERROR(Run(op, device, {}, attrs, out));
  return out;
}

absl::Status TryApplyInto(Device device, const OpDef& op, absl::Span<const TensorArg> in,
                          const Attrs& attrs, Tensors& out) {
  if (op.kind != OpKind::kCompute && !out.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.name, ": the outputs of a view or an update are made of its inputs"));
  }
  const NoRecord off;
  return in.empty() ? Run(op, device, in, attrs, out) : RunChecked(op, in, attrs, out);
}

Tensor Apply(const OpDef& op, std::initializer_list<TensorArg> in, const Attrs& attrs) {
  Tensors out;
  ThrowIfError(RunChecked(op, absl::Span<const TensorArg>(in.begin(), in.size()), attrs, out));
  if (out.empty()) ThrowInvalid(absl::StrCat(op.name, ": gives no tensor; use ApplyAll"));
  return std::move(out[0]);
}

Tensors ApplyAll(const OpDef& op, absl::Span<const TensorArg> in, const Attrs& attrs) {
  return ValueOrThrow(TryApply(op, in, attrs));
}

Tensor CopyOf(const Tensor& x) { return ValueOrThrow(TryCopyOf(x)); }

absl::StatusOr<Specs> InferSpecs(const OpDef& op, absl::Span<const TensorSpec> in,
                                 const Attrs& attrs) {
  SpecPointers in_specs;
  for (const TensorSpec& spec : in) in_specs.push_back(&spec);
  Specs specs;
  if (absl::Status s = op.infer({op, SpecRefs(in_specs), SpecRefs(), attrs}, specs); !s.ok()) {
    return Prefixed(op, s);
  }
  if (op.kind == OpKind::kUpdate) {
    specs.clear();
    for (size_t i = 0; i < in.size(); ++i) {
      if (op.writes.Contains(i)) specs.push_back(in[i]);
    }
  }
  return specs;
}

absl::StatusOr<Cost> PriceOf(const OpDef& op, absl::Span<const TensorSpec> in, const Attrs& attrs) {
  TALLY_ASSIGN_OR_RETURN(const Specs specs, InferSpecs(op, in, attrs));
  if (op.kind == OpKind::kView) return Cost();
  SpecPointers in_specs, out_specs;
  for (const TensorSpec& spec : in) in_specs.push_back(&spec);
  for (const TensorSpec& spec : specs) out_specs.push_back(&spec);
  return op.cost({op, SpecRefs(in_specs), SpecRefs(out_specs), attrs});
}

}  // namespace tally
