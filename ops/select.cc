#include "tally/ops/select.h"

#include <cstring>

#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/convert.h"
#include "tally/ops/elementwise.h"
#include "tally/ops/elementwise_checks.h"
#include "tally/ops/elementwise_launch.h"
#include "tally/ops/select_loops.h"
#include "tally/tensor/dtype_dispatch.h"

namespace tally {

absl::Span<const AttrField> MaskedFillAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(MaskedFillAttrs, value),
                                          TALLY_ATTR(MaskedFillAttrs, where_false)};
  return kFields;
}

namespace {

using internal::ForChunks;
using internal::ItemRun;
using internal::Walk;

Cost NoCost(const OpCall&) { return {}; }

// out = cond ? a : b. A null tensor is the element at `value`.
void Select(const Tensor& out, const Tensor& cond, const Tensor* a, const Tensor* b,
            const void* value) {
  if (out.numel() == 0) return;
  const Tensor* const operands[] = {&out, &cond, a, b};
  const Walk walk = Walk::Over(out.shape(), operands);
  const int64_t item = ItemSize(out.dtype());
  const auto* const mask = static_cast<const uint8_t*>(cond.raw());
  const auto base = [&](const Tensor* t) {
    return static_cast<const char*>(t == nullptr ? value : t->raw());
  };
  const char* const yes = base(a);
  const char* const no = base(b);
  char* const result = static_cast<char*>(out.raw());
  ForChunks(walk.numel, [&](int64_t begin, int64_t end) {
    walk.ForRuns(begin, end, [&](const int64_t* offsets, int64_t n) {
      internal::SelectRun(
          item, mask + offsets[1], walk.step(1), ItemRun{yes + offsets[2] * item, walk.step(2)},
          ItemRun{no + offsets[3] * item, walk.step(3)}, result + offsets[0] * item, n);
    });
  });
}

absl::Status WantMask(const OpCall& call, int i, const char* name, const char* names) {
  if (call.in[i].dtype == DType::kBool) return absl::OkStatus();
  return InvalidCall(
      call, std::string(name) + " must be bool; a comparison or Cast(" + name + ", bool) makes one",
      names);
}

// A null `a` or `b` is `value`, an element of their dtype.
absl::Status SelectOnGpu(Tensor& out, const Tensor& cond, const Tensor* a, const Tensor* b,
                         const void* value) {
  if (out.numel() == 0) return absl::OkStatus();
  uint64_t bits = 0;
  if (value != nullptr) std::memcpy(&bits, value, static_cast<size_t>(ItemSize(out.dtype())));
  return OnGpu(out.device(), [&](const GpuCall& call) {
    const internal::GpuElementwise e =
        internal::OverGpu(out.dtype(), {{&cond}, {a}, {b}}, absl::MakeSpan(&out, 1));
    return internal::LaunchSelect(call, e, bits);
  });
}

// ---- where

constexpr char kWhereNames[] = "cond a b";

absl::Status InferWhere(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(WantMask(call, 0, "cond", kWhereNames));
  TALLY_RETURN_IF_ERROR(internal::WantOneDType(call, 1, 3, kWhereNames));
  Shape shape;
  TALLY_RETURN_IF_ERROR(internal::BroadcastOperands(call, 0, 3, kWhereNames, shape));
  out.push_back({call.in[1].dtype, shape});
  return absl::OkStatus();
}

absl::Status WhereKernel(const KernelArgs& args) {
  Select(args.out[0], *args.in[0], args.in[1], args.in[2], nullptr);
  return absl::OkStatus();
}

absl::Status WhereOnGpu(const KernelArgs& args) {
  return SelectOnGpu(args.out[0], *args.in[0], args.in[1], args.in[2], nullptr);
}

// da = cond ? dy : 0,  db = cond ? 0 : dy
Tensors WhereRuleA(const GradArgs& g) { return {MaskedFill(g.dy(), g.in(0), 0, true)}; }
Tensors WhereRuleB(const GradArgs& g) { return {MaskedFill(g.dy(), g.in(0), 0)}; }

const OpDef kWhere = {
    .name = "where",
    .infer = InferWhere,
    .cost = NoCost,
    .kernel = {.cpu = WhereKernel, .cuda = WhereOnGpu},
    .grads = {{.of = {1}, .reads = In(0), .fn = WhereRuleA},
              {.of = {2}, .reads = In(0), .fn = WhereRuleB}},
    .no_gradient = {0},
};

// ---- masked_fill

constexpr char kMaskedFillNames[] = "x mask";

absl::Status InferMaskedFill(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantMask(call, 1, "mask", kMaskedFillNames));
  Shape shape;
  TALLY_RETURN_IF_ERROR(internal::BroadcastOperands(call, 0, 2, kMaskedFillNames, shape));
  if (shape != call.in[0].shape) {
    return InvalidCall(call, "mask does not broadcast to x", kMaskedFillNames);
  }
  out.push_back(call.in[0]);
  return absl::OkStatus();
}

absl::Status MaskedFillKernel(const KernelArgs& args) {
  const MaskedFillAttrs& attrs = args.As<MaskedFillAttrs>();
  const Tensor& x = *args.in[0];
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = internal::Convert<T>(attrs.value);
    Select(args.out[0], *args.in[1], attrs.where_false ? &x : nullptr,
           attrs.where_false ? nullptr : &x, &value);
  });
  return absl::OkStatus();
}

absl::Status MaskedFillOnGpu(const KernelArgs& args) {
  const MaskedFillAttrs& attrs = args.As<MaskedFillAttrs>();
  const Tensor& x = *args.in[0];
  return VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T value = internal::Convert<T>(attrs.value);
    return SelectOnGpu(args.out[0], *args.in[1], attrs.where_false ? &x : nullptr,
                       attrs.where_false ? nullptr : &x, &value);
  });
}

Tensors MaskedFillRule(const GradArgs& g) {
  return {MaskedFill(g.dy(), g.in(1), 0, g.As<MaskedFillAttrs>().where_false)};
}

const OpDef kMaskedFill = {
    .name = "masked_fill",
    .attrs = MaskedFillAttrs::Fields,
    .infer = InferMaskedFill,
    .cost = NoCost,
    .kernel = {.cpu = MaskedFillKernel, .cuda = MaskedFillOnGpu},
    .grads = {{.of = {0}, .reads = In(1), .fn = MaskedFillRule}},
    .no_gradient = {1},
};

}  // namespace

Tensor Where(const Tensor& cond, const Tensor& a, const Tensor& b) {
  return Apply(kWhere, {cond, a, b});
}

Tensor MaskedFill(const Tensor& x, const Tensor& mask, double value, bool where_false) {
  return Apply(kMaskedFill, {x, mask}, MaskedFillAttrs{value, where_false});
}

OpFamily SelectOps() {
  static const OpDef* const kOps[] = {&kWhere, &kMaskedFill};
  return kOps;
}

}  // namespace tally
