#include "tally/ops/cumsum.h"

#include <algorithm>
#include <type_traits>

#include "tally/ops/apply.h"
#include "tally/ops/checks.h"
#include "tally/ops/lines_gpu.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/cumsum.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

#ifndef TALLY_OPS_CUMSUM_ONCE_
#define TALLY_OPS_CUMSUM_ONCE_
namespace tally {

// Columns side by side whose sums stay in the nearest cache.
inline constexpr int64_t kCumsumTile = 512;
// Rows side by side: each sum waits for the one before it, those of other rows do not.
inline constexpr int64_t kCumsumRows = 4;

// x [outer, n, inner]. Where inner is 1 a task is kCumsumRows rows, else a tile of columns.
struct CumsumLines {
  DType dtype = DType::kF32;
  int64_t outer = 1, n = 1, inner = 1;
  bool reverse = false;

  int64_t tiles() const { return (inner + kCumsumTile - 1) / kCumsumTile; }
  int64_t tasks() const {
    return inner == 1 ? (outer + kCumsumRows - 1) / kCumsumRows : outer * tiles();
  }
  int64_t work() const { return n * (inner == 1 ? kCumsumRows : std::min(inner, kCumsumTile)); }
};

// What a running sum of T is kept in.
template <typename T>
using RunningSum = std::conditional_t<std::is_same_v<T, float>, double, ComputeType<T>>;

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

template <int kRows, typename T>
void SumAlongRows(const T* x, int64_t n, bool reverse, T* y) {
  RunningSum<T> sums[kRows] = {};
  int64_t at = reverse ? n - 1 : 0;
  for (int64_t i = 0; i < n; ++i, at += reverse ? -1 : 1) {
    for (int r = 0; r < kRows; ++r) {
      sums[r] += Load(x[r * n + at]);
      y[r * n + at] = Store<T>(static_cast<ComputeType<T>>(sums[r]));
    }
  }
}

// One vector of running sums, and elements of T as such.
template <typename T>
struct SumVector {
  RowTag<T> d;
  HWY_INLINE auto LoadElements(const T* x) const { return LoadFull(d, x); }
  template <class V>
  HWY_INLINE void StoreElements(V v, T* y) const {
    StoreFull(v, d, y);
  }
};
template <>
struct SumVector<float> {
  hn::ScalableTag<double> d;
  hn::Rebind<float, hn::ScalableTag<double>> elements;
  HWY_INLINE auto LoadElements(const float* x) const {
    return hn::PromoteTo(d, hn::LoadU(elements, x));
  }
  template <class V>
  HWY_INLINE void StoreElements(V v, float* y) const {
    hn::StoreU(hn::DemoteTo(elements, v), elements, y);
  }
};

// Down `width` <= kCumsumTile columns, `inner` elements from one position to the next.
template <typename T>
void SumDownColumns(const T* x, int64_t n, int64_t inner, int64_t width, bool reverse, T* y) {
  const SumVector<T> v;
  const int64_t lanes = hn::Lanes(v.d), whole = width / lanes * lanes;
  HWY_ALIGN RunningSum<T> sums[kCumsumTile] = {};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = (reverse ? n - 1 - i : i) * inner;
    for (int64_t j = 0; j < whole; j += lanes) {
      const auto sum = hn::Add(hn::Load(v.d, sums + j), v.LoadElements(x + row + j));
      hn::Store(sum, v.d, sums + j);
      v.StoreElements(sum, y + row + j);
    }
    for (int64_t j = whole; j < width; ++j) {
      sums[j] += Load(x[row + j]);
      y[row + j] = Store<T>(static_cast<ComputeType<T>>(sums[j]));
    }
  }
}

template <typename T>
void CumsumTasksOf(const CumsumLines& l, const T* x, T* y, int64_t begin, int64_t end) {
  if (l.inner == 1) {
    const int64_t last = std::min(l.outer, end * kCumsumRows);
    int64_t row = begin * kCumsumRows;
    for (; row + kCumsumRows <= last; row += kCumsumRows) {
      SumAlongRows<kCumsumRows>(x + row * l.n, l.n, l.reverse, y + row * l.n);
    }
    for (; row < last; ++row) SumAlongRows<1>(x + row * l.n, l.n, l.reverse, y + row * l.n);
    return;
  }
  for (int64_t task = begin; task < end; ++task) {
    const int64_t column = task % l.tiles() * kCumsumTile;
    const int64_t at = task / l.tiles() * l.n * l.inner + column;
    SumDownColumns(x + at, l.n, l.inner, std::min(kCumsumTile, l.inner - column), l.reverse,
                   y + at);
  }
}

void CumsumTasks(const CumsumLines& l, const void* x, void* y, int64_t begin, int64_t end) {
  VisitFloat(l.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    CumsumTasksOf(l, static_cast<const T*>(x), static_cast<T*>(y), begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

absl::Span<const AttrField> CumsumAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(CumsumAttrs, axis),
                                          TALLY_ATTR_OPTIONAL(CumsumAttrs, reverse)};
  return kFields;
}

namespace {

HWY_EXPORT(CumsumTasks);

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantFloat(call));
  int axis = 0;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, call.As<CumsumAttrs>().axis, call.in[0].rank(), &axis));
  out = {call.in[0]};
  return absl::OkStatus();
}

Cost Price(const OpCall& call) {
  const Count elements = call.in[0].numel();
  const int64_t n = call.in[0].shape[call.As<CumsumAttrs>().axis];
  return {.other = n == 0 ? 0 : elements - elements / n};
}

absl::Status Run(const KernelArgs& k) {
  const Tensor& x = *k.in[0];
  if (x.numel() == 0) return absl::OkStatus();
  const auto& a = k.As<CumsumAttrs>();
  const int axis = FromFront(a.axis, x.rank());
  CumsumLines lines{.dtype = x.dtype(), .n = x.dim(axis), .reverse = a.reverse};
  for (int i = 0; i < axis; ++i) lines.outer *= x.dim(i);
  for (int i = axis + 1; i < x.rank(); ++i) lines.inner *= x.dim(i);
  const void* const from = x.raw();
  void* const to = k.out[0].raw();
  if (x.device().kind != DeviceKind::kCpu) {
    const GpuLines l{
        .dtype = lines.dtype, .outer = lines.outer, .n = lines.n, .inner = lines.inner};
    return OnGpu(x.device(), [&](const GpuCall& call) {
      return LaunchCumsum(call, l, lines.reverse, from, to);
    });
  }
  ForRows(lines.tasks(), lines.work(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CumsumTasks)(lines, from, to, begin, end);
  });
  return absl::OkStatus();
}

Tensors Grad(const GradArgs& g) {
  const auto& a = g.As<CumsumAttrs>();
  return {Cumsum(g.dy(), a.axis, !a.reverse)};
}

}  // namespace

constinit const OpDef kCumsum = {
    .name = "cumsum",
    .attrs = CumsumAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .reads = kNothing, .fn = Grad}},
};

Tensor Cumsum(const Tensor& x, int axis, bool reverse) {
  return Apply(kCumsum, {x}, CumsumAttrs{axis, reverse});
}

OpFamily CumsumOps() {
  static const OpDef* const kOps[] = {&kCumsum};
  return kOps;
}

}  // namespace tally
#endif  // HWY_ONCE
