// Variance: the mean of each row, then the mean of the squared differences from it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/lines_gpu.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/var.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

template <typename T>
void VarRowsOf(const T* x, int64_t rows, int64_t n, int64_t divisor, T* out) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  for (int64_t r = 0; r < rows; ++r, x += n) {
    const C sum = SumVectors(
        d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA { return LoadSome(d, x + i, k, 0); });
    const C mean = sum / static_cast<C>(n);
    const auto m = hn::Set(d, mean);
    const C squares = SumVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto centered = hn::Sub(LoadSome(d, x + i, k, mean), m);
      return hn::Mul(centered, centered);
    });
    out[r] = Store<T>(squares / static_cast<C>(divisor));
  }
}

void VarRows(DType dtype, const void* x, int64_t begin, int64_t end, int64_t n, int64_t divisor,
             void* out) {
  VisitFloat(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    VarRowsOf(static_cast<const T*>(x) + begin * n, end - begin, n, divisor,
              static_cast<T*>(out) + begin);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

absl::Span<const AttrField> VarAttrs::Fields() {
  static constexpr AttrField kFields[] = {
      TALLY_ATTR(VarAttrs, axes), TALLY_ATTR(VarAttrs, correction), TALLY_ATTR(VarAttrs, keepdim)};
  return kFields;
}

namespace {

HWY_EXPORT(VarRows);

uint32_t MaskOf(const VarAttrs& a, const TensorSpec& x) { return AxisMask(a.axes, x.rank()); }

absl::Status InferVar(const OpCall& call, Specs& out) {
  const auto& a = call.As<VarAttrs>();
  if (a.correction < 0) {
    return InvalidCall(call, absl::StrCat("correction is ", a.correction, ", which is negative"));
  }
  return InferAxes(call, a.axes, a.keepdim, out);
}

Cost PriceVar(const OpCall& call) {
  const int64_t n = CountOf(call.in[0].shape, MaskOf(call.As<VarAttrs>(), call.in[0]));
  return {.other = call.out[0].numel() * (2 * (Folds(n) + 1) + 2 * Count(n))};
}

// Whether the reduced axes come last, so that what they reduce lies together.
bool RowsLieTogether(const Shape& x, uint32_t mask) {
  bool reduced = false;
  for (int a = 0; a < x.rank(); ++a) {
    if (x[a] == 1) continue;
    const bool now = (mask >> a & 1) != 0;
    if (reduced && !now) return false;
    reduced = now;
  }
  return true;
}

int64_t VarScratch(const OpCall& call) {
  const TensorSpec& x = call.in[0];
  return RowsLieTogether(x.shape, MaskOf(call.As<VarAttrs>(), x)) ? 0 : x.bytes();
}

// Row-major positions of the axes in `mask` and the way through their elements.
struct Odometer {
  absl::InlinedVector<int64_t, kMaxRank> dims, strides, index;

  Odometer(const Shape& x, uint32_t mask) {
    const Strides all = RowMajorStrides(x);
    for (int a = 0; a < x.rank(); ++a) {
      if ((mask >> a & 1) == 0) continue;
      dims.push_back(x[a]);
      strides.push_back(all[a]);
    }
    index.assign(dims.size(), 0);
  }
  // The offset of the next element, given that of this one. Wraps to the first.
  int64_t Next(int64_t offset) {
    for (size_t i = dims.size(); i-- > 0;) {
      offset += strides[i];
      if (++index[i] < dims[i]) return offset;
      offset -= dims[i] * strides[i];
      index[i] = 0;
    }
    return offset;
  }
};

// Copies x so that what is reduced into one element lies together.
template <typename T>
void Pack(const Shape& shape, uint32_t mask, int64_t n, const T* x, T* to) {
  Odometer kept(shape, ~mask), reduced(shape, mask);
  const int64_t rows = shape.numel() / n;
  for (int64_t r = 0, base = 0; r < rows; ++r, base = kept.Next(base)) {
    for (int64_t i = 0, offset = base; i < n; ++i, offset = reduced.Next(offset)) *to++ = x[offset];
  }
}

// The axes in `mask` with neighbours merged.
GpuVar::Space SpaceOf(const Shape& x, uint32_t mask) {
  const Strides strides = RowMajorStrides(x);
  GpuVar::Space space;
  for (int a = 0; a < x.rank(); ++a) {
    if ((mask >> a & 1) == 0 || x[a] == 1) continue;
    const int last = space.rank - 1;
    if (last >= 0 && space.strides[last] == x[a] * strides[a]) {
      space.dims[last] *= x[a];
      space.strides[last] = strides[a];
      continue;
    }
    space.dims[space.rank] = x[a];
    space.strides[space.rank++] = strides[a];
  }
  return space;
}

absl::Status RunVar(const KernelArgs& k) {
  const Tensor& x = *k.in[0];
  const auto& a = k.As<VarAttrs>();
  const uint32_t mask = MaskOf(a, x.spec());
  const int64_t n = CountOf(x.shape(), mask);
  const int64_t divisor = std::max<int64_t>(n - a.correction, 0);
  if (x.device().kind != DeviceKind::kCpu) {
    static_assert(GpuVar::kMaxAxes == kMaxRank);
    const GpuVar var{.dtype = x.dtype(),
                     .outputs = k.out[0].numel(),
                     .n = n,
                     .divisor = divisor,
                     .kept = SpaceOf(x.shape(), ~mask),
                     .reduced = SpaceOf(x.shape(), mask)};
    return OnGpu(x.device(), [&](const GpuCall& call) {
      return LaunchVar(call, var, x.raw(), k.out[0].raw());
    });
  }
  const void* rows = x.raw();
  if (x.numel() > 0 && !RowsLieTogether(x.shape(), mask)) {
    VisitFloat(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Pack(x.shape(), mask, n, k.In<T>(0), static_cast<T*>(k.scratch));
    });
    rows = k.scratch;
  }
  void* out = k.out[0].raw();
  ForRows(k.out[0].numel(), n, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(VarRows)
    (x.dtype(), rows, begin, end, n, divisor, out);
  });
  return absl::OkStatus();
}

// dx = dy 2 (x - mean) / max(0, n - correction).
Tensors GradVar(const GradArgs& g) {
  const auto& a = g.As<VarAttrs>();
  const Shape& x = g.in_spec(0).shape;
  const uint32_t mask = MaskOf(a, g.in_spec(0));
  const double n = static_cast<double>(std::max<int64_t>(CountOf(x, mask) - a.correction, 0));
  const Tensor centered = Sub(g.in(0), Mean(g.in(0), a.axes, true));
  return {Mul(centered, Mul(KeepDims(g.dy(), x, mask, a.keepdim), 2 / n))};
}

}  // namespace

constinit const OpDef kVar = {
    .name = "var",
    .attrs = VarAttrs::Fields,
    .infer = InferVar,
    .cost = PriceVar,
    .scratch = VarScratch,
    .kernel = {.cpu = RunVar, .cuda = RunVar},
    .grads = {{.of = {0}, .reads = In(0), .fn = GradVar}},
};

Tensor Var(const Tensor& x, const Axes& axes, int correction, bool keepdim) {
  return Apply(kVar, {x}, VarAttrs{axes, correction, keepdim});
}

}  // namespace tally
#endif  // HWY_ONCE
