#include "tally/ops/sdpa.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/matmul.h"
#include "tally/ops/reduce.h"
#include "tally/ops/rows.h"
#include "tally/ops/sdpa_gpu.h"
#include "tally/ops/sdpa_tiles.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> SdpaAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(SdpaAttrs, scale), TALLY_ATTR(SdpaAttrs, causal),
      TALLY_ATTR_OPTIONAL(SdpaAttrs, window), TALLY_ATTR_OPTIONAL(SdpaAttrs, documents),
      TALLY_ATTR_OPTIONAL(SdpaAttrs, softcap)};
  return kFields;
}

namespace {

const char kNames[] = "q k v";
const char kGradNames[] = "dy q k v out lse";

// Inputs `first`, first + 1 and first + 2 are q, k and v.
absl::Status CheckQkv(const OpCall& call, int first, const char* names) {
  const TensorSpec &q = call.in[first], &k = call.in[first + 1], &v = call.in[first + 2];
  const auto& a = call.As<SdpaAttrs>();
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    return InvalidCall(call, "wants q [B,Q,H,d], k [B,K,Hkv,d], v [B,K,Hkv,e]", names);
  }
  if (!IsComputingFloat(q.dtype)) {
    return InvalidCall(call, "computes on f64, f32, bf16 and f16; cast first", names);
  }
  if (k.dtype != q.dtype || v.dtype != q.dtype) {
    return InvalidCall(call, "operands differ in dtype; cast to one", names);
  }
  if (k.shape[0] != q.shape[0] || v.shape[0] != q.shape[0]) {
    return InvalidCall(call, "batches differ; expand the smaller one", names);
  }
  if (k.shape[3] != q.shape[3]) return InvalidCall(call, "the last dims of q and k differ", names);
  if (k.shape[1] != v.shape[1]) {
    return InvalidCall(call, "k and v hold different numbers of keys", names);
  }
  const int64_t heads = q.shape[2], served = k.shape[2];
  if (v.shape[2] != served) {
    return InvalidCall(call, "k and v have different numbers of heads", names);
  }
  if (served == 0 ? heads != 0 : heads % served != 0) {
    return InvalidCall(call,
                       absl::StrCat("the ", heads, " heads of q are no multiple of the ", served,
                                    " heads of k and v"),
                       names);
  }
  if (!std::isfinite(a.scale)) return InvalidCall(call, "the scale is not finite", names);
  if (!(a.softcap >= 0) || std::isinf(a.softcap)) {
    return InvalidCall(
        call, absl::StrCat("the softcap is ", a.softcap, "; it is positive, or 0 for none"), names);
  }
  const std::string fault = MaskFault(a.mask(), q.shape[1], k.shape[1]);
  return fault.empty() ? absl::OkStatus() : InvalidCall(call, fault, names);
}

TensorSpec OutSpec(const TensorSpec& q, const TensorSpec& v) {
  return {q.dtype, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]}};
}
TensorSpec LseSpec(const TensorSpec& q) {
  return {StatDType(q.dtype), {q.shape[0], q.shape[2], q.shape[1]}};
}

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 3));
  TALLY_RETURN_IF_ERROR(CheckQkv(call, 0, kNames));
  out = {OutSpec(call.in[0], call.in[2]), LseSpec(call.in[0])};
  return absl::OkStatus();
}

absl::Status InferGrad(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 6));
  TALLY_RETURN_IF_ERROR(CheckQkv(call, 1, kGradNames));
  const TensorSpec like = OutSpec(call.in[1], call.in[3]), lse = LseSpec(call.in[1]);
  if (call.in[0] != like || call.in[4] != like) {
    return InvalidCall(call, absl::StrCat("dy and out are to be ", like.ToString()), kGradNames);
  }
  if (call.in[5] != lse) {
    return InvalidCall(call, absl::StrCat("lse is to be ", lse.ToString()), kGradNames);
  }
  out = {call.in[1], call.in[2], call.in[3]};
  return absl::OkStatus();
}

SdpaShape ShapeOf(const TensorSpec& q, const TensorSpec& k, const TensorSpec& v,
                  const SdpaAttrs& a) {
  return {.dtype = q.dtype,
          .batch = q.shape[0],
          .queries = q.shape[1],
          .keys = k.shape[1],
          .heads = q.shape[2],
          .kv_heads = k.shape[2],
          .d = q.shape[3],
          .e = v.shape[3],
          .scale = a.scale,
          .softcap = a.softcap,
          .mask = a.mask()};
}
SdpaShape ShapeOf(const OpCall& call, int first = 0) {
  return ShapeOf(call.in[first], call.in[first + 1], call.in[first + 2], call.As<SdpaAttrs>());
}

// Pairs and rows of the whole call.
struct Extent {
  Count pairs, rows;
};
Extent NominalExtent(const SdpaShape& s) {
  const Count matrices = Count(s.batch) * s.heads;
  return {matrices * NominalPairs(s.mask, s.queries, s.keys),
          matrices * NominalRows(s.mask, s.queries, s.keys)};
}

Cost Price(const OpCall& call) {
  const SdpaShape s = ShapeOf(call);
  const auto [pairs, rows] = NominalExtent(s);
  const int scales = s.softcap != 0 ? 2 : s.scale != 1;
  return {.matmul = kFlopsPerFma * pairs * (s.d + s.e),
          .other = (4 + scales) * pairs - rows,
          .transcendental = (s.softcap != 0 ? 2 : 1) * pairs + rows};
}

Cost PriceGrad(const OpCall& call) {
  const SdpaShape s = ShapeOf(call, 1);
  const auto [pairs, rows] = NominalExtent(s);
  const int scales = s.softcap != 0 ? 5 : s.scale != 1;
  const Count shared = Count(s.batch) * s.keys * s.kv_heads * (s.d + s.e) * (s.group() - 1);
  return {.matmul = 2 * kFlopsPerFma * pairs * (s.d + s.e),
          .other = (4 + scales) * pairs - rows + shared};
}

// `products`: FLOPs of one pair by the products that `cost` counts; `again`: of the scores made
// again.
MaskedCounts Masked(const SdpaShape& s, Count products, Count again) {
  const Count matrices = Count(s.batch) * s.heads;
  const Count run = matrices * ExecutedPairs(s);
  return {.full = matrices * FullPairs(s.queries, s.keys) * products,
          .causal_half = matrices * TwiceHalfPairs(s.mask, s.queries, s.keys) * (products / 2),
          .causal_exact = matrices * ExactPairs(s.mask, s.queries, s.keys) * products,
          .executed = run * (products + again),
          .recomputed = run * again};
}
MaskedCounts MaskedForward(const OpCall& call) {
  const SdpaShape s = ShapeOf(call);
  return Masked(s, kFlopsPerFma * Count(s.d + s.e), 0);
}
MaskedCounts MaskedBackward(const OpCall& call) {
  const SdpaShape s = ShapeOf(call, 1);
  return Masked(s, 2 * kFlopsPerFma * Count(s.d + s.e), kFlopsPerFma * Count(s.d));
}

int64_t Scratch(const OpCall& call) { return SdpaScratch(ShapeOf(call)); }
int64_t GradScratch(const OpCall& call) { return SdpaGradScratch(ShapeOf(call, 1)); }

// Rows of the last axis are read whole.
bool StridedOk(const Tensor& in, int, const Attrs&) {
  return in.rank() == 4 && (in.dim(3) <= 1 || in.strides()[3] == 1);
}

SdpaOperand OperandOf(const Tensor& x) {
  const Strides& strides = x.strides();
  return {x.raw(), strides[0], strides[1], strides[2]};
}

SdpaInputs InputsOf(const KernelArgs& k, int first) {
  return {OperandOf(*k.in[first]), OperandOf(*k.in[first + 1]), OperandOf(*k.in[first + 2])};
}
SdpaShape ForwardShape(const KernelArgs& k) {
  return ShapeOf(k.in[0]->spec(), k.in[1]->spec(), k.in[2]->spec(), k.As<SdpaAttrs>());
}
SdpaShape GradShape(const KernelArgs& k) {
  return ShapeOf(k.in[1]->spec(), k.in[2]->spec(), k.in[3]->spec(), k.As<SdpaAttrs>());
}
SdpaGradArrays GradArraysOf(const KernelArgs& k) {
  return {.dy = OperandOf(*k.in[0]),
          .out = OperandOf(*k.in[4]),
          .lse = k.in[5]->raw(),
          .dq = k.out[0].raw(),
          .dk = k.out[1].raw(),
          .dv = k.out[2].raw()};
}

absl::Status Run(const KernelArgs& k) {
  RunSdpa(ForwardShape(k), InputsOf(k, 0), k.out[0].raw(), k.out[1].raw(), k.scratch);
  return absl::OkStatus();
}

absl::Status RunGrad(const KernelArgs& k) {
  RunSdpaGrad(GradShape(k), InputsOf(k, 1), GradArraysOf(k), k.scratch);
  return absl::OkStatus();
}

// Rows of whole vectors of 16 bytes.
bool AlignedRows(const SdpaOperand& x, int64_t row, int64_t item) {
  const int64_t address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data));
  for (const int64_t stride : {row, x.batch, x.position, x.head}) {
    if (stride * item % 16 != 0) return false;
  }
  return address % 16 == 0;
}

// Documents need a table of what every query sees, at the start of scratch as on the CPU.
absl::StatusOr<internal::GpuSdpa> OnDevice(const SdpaShape& s, const SdpaInputs& in,
                                           const KernelArgs& k) {
  internal::GpuSdpa f{.dtype = s.dtype,
                      .batch = s.batch,
                      .queries = s.queries,
                      .keys = s.keys,
                      .heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .group = s.group(),
                      .d = s.d,
                      .e = s.e,
                      .scales = SdpaScalesOf(s.scale, s.softcap),
                      .softcap = s.softcap != 0,
                      .causal = s.mask.causal,
                      .window = s.mask.window,
                      .in = in};
  const int64_t item = ItemSize(s.dtype);
  f.aligned =
      AlignedRows(in.q, s.d, item) && AlignedRows(in.k, s.d, item) && AlignedRows(in.v, s.e, item);
  if (!s.mask.documents.empty()) {
    std::vector<KeyRange> ranges(static_cast<size_t>(s.queries));
    FillVisibleKeys(s.mask, s.queries, s.keys, ranges.data());
    TALLY_RETURN_IF_ERROR(
        ExistingBackend(k.out[0].device())
            .CopyIn(k.scratch, ranges.data(), s.queries * int64_t{sizeof(KeyRange)}));
    f.ranges = static_cast<const KeyRange*>(k.scratch);
  }
  return f;
}

absl::Status RunOnGpu(const KernelArgs& k) {
  const SdpaShape s = ForwardShape(k);
  if (s.batch * s.heads * s.queries == 0) return absl::OkStatus();
  TALLY_ASSIGN_OR_RETURN(internal::GpuSdpa f, OnDevice(s, InputsOf(k, 0), k));
  f.out = k.out[0].raw();
  f.lse = k.out[1].raw();
  return OnGpu(k.out[0].device(),
               [&](const GpuCall& call) { return internal::LaunchSdpa(call, f); });
}

absl::Status RunGradOnGpu(const KernelArgs& k) {
  const SdpaShape s = GradShape(k);
  if (s.batch * s.kv_heads == 0) return absl::OkStatus();
  TALLY_ASSIGN_OR_RETURN(internal::GpuSdpa f, OnDevice(s, InputsOf(k, 1), k));
  f.grad = GradArraysOf(k);
  const int64_t item = ItemSize(s.dtype);
  f.aligned = f.aligned && AlignedRows(f.grad.dy, s.e, item);
  // What the CPU works in has room for the sums of all rows, but where there are very many.
  const int64_t ranges = SdpaRangeBytes(s);
  const int64_t rows = s.batch * s.heads * s.queries * ItemSize(StatDType(s.dtype));
  if (rows <= SdpaGradScratch(s) - ranges) f.delta = static_cast<char*>(k.scratch) + ranges;
  return OnGpu(k.out[0].device(),
               [&](const GpuCall& call) { return internal::LaunchSdpaGrad(call, f); });
}

// [B, T, H, d] as [B, Hkv, H / Hkv, T, d].
Tensor ByGroups(const Tensor& x, int64_t kv_heads) {
  const Tensor y = Transpose(x, 1, 2);
  const int64_t group = kv_heads == 0 ? 1 : y.dim(1) / kv_heads;
  return Reshape(y, {y.dim(0), kv_heads, group, y.dim(2), y.dim(3)});
}
// And back.
Tensor FromGroups(const Tensor& x) {
  return Transpose(Reshape(x, {x.dim(0), x.dim(1) * x.dim(2), x.dim(3), x.dim(4)}), 1, 2);
}

// With p = softmax(s), t = tanh(scale q·kᵀ / c) and s = c t, or s = scale q·kᵀ without softcap:
//   dv = pᵀ dy,  ds = p (dy vᵀ - sum(p dy vᵀ)),  dx = scale (1 - t²) ds,  dq = dx k,  dk = dxᵀ q.
Tensors ComposedGrad(const GradArgs& g) {
  const auto& a = g.As<SdpaAttrs>();
  const int64_t kv_heads = g.in_spec(1).shape[2];
  const Tensor q = ByGroups(g.in(0), kv_heads), k = ByGroups(g.in(1), kv_heads);
  const Tensor v = ByGroups(g.in(2), kv_heads), dy = ByGroups(g.dy(), kv_heads);
  SoftmaxOptions softmax{
      .scale = a.scale, .causal = a.causal, .window = a.window, .documents = a.documents};
  Tensor scores = MatMul(q, k, {.b = true}), tanh;
  if (a.softcap != 0) {
    tanh = Tanh(Mul(scores, a.scale / a.softcap));
    scores = tanh;
    softmax.scale = a.softcap;
  }
  const Tensor p = Softmax(scores, softmax);
  const Tensor dp = MatMul(dy, v, {.b = true});
  Tensor ds = Mul(p, Sub(dp, Sum(Mul(p, dp), {-1}, true)));
  if (a.softcap != 0) ds = Mul(ds, Sub(1.0, Square(tanh)));
  if (a.scale != 1) ds = Mul(ds, a.scale);
  const auto shared = [](const Tensor& x) { return FromGroups(Sum(x, {2}, true)); };
  return {FromGroups(MatMul(ds, k)), shared(MatMul(ds, q, {.a = true})),
          shared(MatMul(p, dy, {.a = true}))};
}

Tensors Grad(const GradArgs& g) {
  if (g.has_dy(1)) ThrowInvalid("sdpa: lse has no gradient");
  if (g.create_graph()) return ComposedGrad(g);
  return ApplyAll(kSdpaGrad, {g.dy(), g.in(0), g.in(1), g.in(2), g.out(0), g.out(1)},
                  g.As<SdpaAttrs>());
}

}  // namespace

constinit const OpDef kSdpa = {
    .name = "sdpa",
    .attrs = SdpaAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .masked = MaskedForward,
    .scratch = Scratch,
    .kernel = {.cpu = Run, .cuda = RunOnGpu},
    .strided = {0, 1, 2},
    .strided_ok = StridedOk,
    .grads = {{.of = {0, 1, 2}, .reads = In(0) | In(1) | In(2) | Out(0) | Out(1), .fn = Grad}},
};

constinit const OpDef kSdpaGrad = {
    .name = "sdpa_grad",
    .attrs = SdpaAttrs::Fields,
    .infer = InferGrad,
    .cost = PriceGrad,
    .masked = MaskedBackward,
    .scratch = GradScratch,
    .kernel = {.cpu = RunGrad, .cuda = RunGradOnGpu},
    .strided = {0, 1, 2, 3, 4},
    .strided_ok = StridedOk,
};

SdpaResult Sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaAttrs& attrs) {
  Tensors out = ApplyAll(kSdpa, {q, k, v}, attrs);
  return {std::move(out[0]), std::move(out[1])};
}

OpFamily SdpaOps() {
  static const OpDef* const kOps[] = {&kSdpa, &kSdpaGrad};
  return kOps;
}

}  // namespace tally
