#include "tally/ops/prod_grad.h"

#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/checks.h"
#include "tally/ops/copy.h"
#include "tally/ops/join.h"
#include "tally/ops/lines_gpu.h"
#include "tally/ops/reduce.h"
#include "tally/ops/reduce_axes.h"
#include "tally/ops/rows.h"
#include "tally/ops/view.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> ProdGradAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(ProdGradAttrs, axis)};
  return kFields;
}

namespace {

// ---- prod_grad

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 2));
  TALLY_RETURN_IF_ERROR(WantFloat(call));
  const TensorSpec& x = call.in[0];
  int axis = 0;
  TALLY_RETURN_IF_ERROR(ResolveAxis(call, call.As<ProdGradAttrs>().axis, x.rank(), &axis));
  const TensorSpec wanted{x.dtype, x.shape.With(axis, 1)};
  if (call.in[1] != wanted) {
    return InvalidCall(call, absl::StrCat("dy must be ", wanted.ToString()), "x dy");
  }
  out = {x};
  return absl::OkStatus();
}

// Per line of n: the products from the left n-2, those from the right with dy n-1, and of both n-1.
Cost Price(const OpCall& call) {
  const Count elements = call.in[0].numel(), lines = call.in[1].numel();
  const int64_t n = call.in[0].shape[call.As<ProdGradAttrs>().axis];
  return {.other = n < 2 ? Count{0} : 3 * elements - 4 * lines};
}

// The products from the left of narrow floats, which dx could not hold.
int64_t Scratch(const OpCall& call) {
  const TensorSpec& x = call.in[0];
  return ItemSize(x.dtype) < ItemSize(DType::kF32) ? x.numel() * ItemSize(DType::kF32) : 0;
}

constexpr int64_t kTile = 256;  // columns side by side

// dx_i = (x_0 ... x_{i-1}) (x_{i+1} ... x_{n-1} dy) down `width` <= kTile columns. `left` may be
// dx.
template <typename T>
void ProductsOfOthers(const T* x, const T* dy, int64_t n, int64_t inner, int64_t width,
                      ComputeType<T>* left, T* dx) {
  using C = ComputeType<T>;
  C product[kTile], others[kTile];
  std::fill(product, product + width, C(1));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      left[i * inner + j] = product[j];
      product[j] *= Load(x[i * inner + j]);
    }
  }
  for (int64_t j = 0; j < width; ++j) product[j] = Load(dy[j]);
  for (int64_t i = n; i-- > 0;) {
    for (int64_t j = 0; j < width; ++j) {
      others[j] = left[i * inner + j] * product[j];
      product[j] *= Load(x[i * inner + j]);
    }
    for (int64_t j = 0; j < width; ++j) dx[i * inner + j] = Store<T>(others[j]);
  }
}

absl::Status Run(const KernelArgs& k) {
  const Tensor& x = *k.in[0];
  if (x.numel() == 0) return absl::OkStatus();
  const int axis = FromFront(k.As<ProdGradAttrs>().axis, x.rank());
  const int64_t n = x.dim(axis);
  int64_t inner = 1;
  for (int a = axis + 1; a < x.rank(); ++a) inner *= x.dim(a);
  const int64_t outer = x.numel() / n / inner, tiles = (inner + kTile - 1) / kTile;
  if (x.device().kind != DeviceKind::kCpu) {
    const GpuLines lines{.dtype = x.dtype(), .outer = outer, .n = n, .inner = inner};
    void* const dx = k.out[0].raw();
    return OnGpu(x.device(), [&](const GpuCall& call) {
      return LaunchProdGrad(call, lines, x.raw(), k.in[1]->raw(),
                            k.scratch == nullptr ? dx : k.scratch, dx);
    });
  }
  VisitFloat(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const T *const xs = k.In<T>(0), *const dy = k.In<T>(1);
    T* const dx = k.Out<T>(0);
    C* const left = std::is_same_v<T, C> ? reinterpret_cast<C*>(dx) : static_cast<C*>(k.scratch);
    ForRows(outer * tiles, n * std::min(inner, kTile), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = task / tiles, column = task % tiles * kTile;
        const int64_t at = row * n * inner + column;
        ProductsOfOthers(xs + at, dy + row * inner + column, n, inner,
                         std::min(kTile, inner - column), left + at, dx + at);
      }
    });
  });
  return absl::OkStatus();
}

// ---- the rule

// x as [outer, n, inner] with all reduced axes as n, and back. A view where they are neighbours,
// else they go to the end.
class Lines {
 public:
  Lines(const Shape& x, uint32_t mask)
      : x_(x), neighbours_(std::has_single_bit((mask >> std::countr_zero(mask)) + 1)) {
    absl::InlinedVector<int, kMaxRank> order, reduced;
    for (int a = 0; a < x.rank(); ++a) {
      const bool is_reduced = (mask >> a & 1) != 0;
      int64_t& extent = is_reduced ? n_ : neighbours_ && (mask >> a) == 0 ? inner_ : outer_;
      extent *= x[a];
      (is_reduced ? reduced : order).push_back(a);
    }
    order.insert(order.end(), reduced.begin(), reduced.end());
    order_ = Axes(absl::MakeConstSpan(order));
  }

  Tensor Of(const Tensor& x) const {
    return Reshape(neighbours_ ? x : Permute(x, order_), {outer_, n_, inner_});
  }
  Tensor OfReduced(const Tensor& dy) const { return Reshape(dy, {outer_, 1, inner_}); }
  Tensor Back(const Tensor& lines) const {
    if (neighbours_) return Reshape(lines, x_);
    absl::InlinedVector<int64_t, kMaxRank> dims;
    absl::InlinedVector<int, kMaxRank> back(x_.rank());
    for (int i = 0; i < x_.rank(); ++i) {
      dims.push_back(x_[order_[i]]);
      back[order_[i]] = i;
    }
    return Permute(Reshape(lines, absl::MakeConstSpan(dims)), Axes(absl::MakeConstSpan(back)));
  }

 private:
  Shape x_;
  bool neighbours_;
  int64_t outer_ = 1, n_ = 1, inner_ = 1;
  Axes order_;  // kept axes, then reduced ones
};

// x moved by `by` places along axis 1, towards the end or the beginning; ones come in.
Tensor Shifted(const Tensor& x, int64_t by, bool to_end) {
  const int64_t n = x.dim(1);
  const Tensor ones = Fill({x.dtype(), x.shape().With(1, by)}, 1, x.device());
  if (to_end) return Cat({ones, Slice(x, 1, 0, n - by)}, 1);
  return Cat({Slice(x, 1, by, n), ones}, 1);
}

// Along axis 1, the product of all that come before (after) each element: windows that double.
Tensor ProductBeside(const Tensor& x, bool before) {
  const int64_t n = x.dim(1);
  Tensor product = Shifted(x, 1, before);
  for (int64_t width = 1; width < n - 1; width *= 2) {
    product = Mul(product, Shifted(product, width, before));
  }
  return product;
}

}  // namespace

Tensors GradProd(const GradArgs& g) {
  const auto& a = g.As<ReduceAttrs>();
  const Shape& shape = g.in_spec(0).shape;
  const uint32_t mask = AxisMask(a.axes, shape.rank());
  const Tensor& x = g.in(0);
  if (x.numel() == 0) {
    return {Expand(KeepDims(g.dy(), shape, mask, a.keepdim), shape)};  // of no elements
  }
  if (mask == 0) return {g.dy()};  // a scalar
  const Lines lines(shape, mask);
  const Tensor xs = lines.Of(x), dy = lines.OfReduced(g.dy());
  if (!g.create_graph()) return {lines.Back(Apply(kProdGrad, {xs, dy}, ProdGradAttrs{1}))};
  return {lines.Back(Mul(Mul(ProductBeside(xs, true), ProductBeside(xs, false)), dy))};
}

constinit const OpDef kProdGrad = {
    .name = "prod_grad",
    .attrs = ProdGradAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .scratch = Scratch,
    .kernel = {.cpu = Run, .cuda = Run},
};

}  // namespace tally
