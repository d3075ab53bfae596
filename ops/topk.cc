#include "tally/ops/topk.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"
#include "tally/ops/axis_index.h"
#include "tally/ops/checks.h"
#include "tally/ops/lines_gpu.h"
#include "tally/ops/rows.h"
#include "tally/tensor/gpu.h"

namespace tally {

absl::Span<const AttrField> TopKAttrs::Fields() {
  static constexpr AttrField kFields[] = {TALLY_ATTR(TopKAttrs, k)};
  return kFields;
}

namespace {

absl::Status Infer(const OpCall& call, Specs& out) {
  TALLY_RETURN_IF_ERROR(WantInputs(call, 1));
  TALLY_RETURN_IF_ERROR(WantFloat(call));
  const TensorSpec& x = call.in[0];
  const int64_t k = call.As<TopKAttrs>().k;
  if (x.rank() == 0) return InvalidCall(call, "a scalar has no axis to choose along");
  if (k < 0 || k > x.shape[-1]) {
    return InvalidCall(call, absl::StrCat("k is ", k, ", not in [0, ", x.shape[-1],
                                          "], the length of the last axis"));
  }
  const Shape shape = x.shape.With(x.rank() - 1, k);
  out = {{x.dtype, shape}, {DType::kI64, shape}};
  return absl::OkStatus();
}

Cost Price(const OpCall& call) {
  const Count k = call.As<TopKAttrs>().k, n = call.in[0].shape[-1];
  const Count rows = k == 0 ? 0 : call.out[0].numel() / k;
  return {.other = rows * (k * n - k * (k + 1) / 2)};
}

// Which of two positions of a row comes first.
template <typename T>
struct Before {
  const T* x;

  bool operator()(int64_t a, int64_t b) const {
    const ComputeType<T> u = Load(x[a]), v = Load(x[b]);
    if (u > v) return true;
    if (u < v) return false;
    const bool u_nan = std::isnan(u), v_nan = std::isnan(v);
    return u_nan != v_nan ? u_nan : a < b;
  }
};

inline constexpr int64_t kRun = 32;

// Whether any of x[0, kRun) may come before `worst`. Without branches: most runs of a long row have
// none.
template <typename T>
bool AnyBefore(const T* x, ComputeType<T> worst) {
  int any = 0;
  for (int64_t i = 0; i < kRun; ++i) any |= !(Load(x[i]) <= worst);
  return any != 0;
}

// `best` is a heap of the k first positions with the last of them on top. Positions come in order,
// so that an element equal to the top one never replaces it.
template <typename T>
void TopOfRow(const T* x, int64_t n, int64_t k, T* values, int64_t* best) {
  const Before<T> before{x};
  std::iota(best, best + k, int64_t{0});
  std::make_heap(best, best + k, before);
  int64_t i = k;
  while (i < n) {
    const ComputeType<T> worst = Load(x[best[0]]);
    if (n - i >= kRun && !AnyBefore(x + i, worst)) {
      i += kRun;
      continue;
    }
    for (const int64_t end = std::min(n, i + kRun); i < end; ++i) {
      if (!before(i, best[0])) continue;
      std::pop_heap(best, best + k, before);
      best[k - 1] = i;
      std::push_heap(best, best + k, before);
    }
  }
  std::sort_heap(best, best + k, before);
  for (int64_t j = 0; j < k; ++j) values[j] = x[best[j]];
}

absl::Status Run(const KernelArgs& args) {
  const int64_t k = args.As<TopKAttrs>().k, n = args.in[0]->dim(-1);
  if (k == 0) return absl::OkStatus();
  const Tensor& x = *args.in[0];
  if (x.device().kind != DeviceKind::kCpu) {
    const GpuLines lines{.dtype = x.dtype(), .outer = args.out[0].numel() / k, .n = n};
    return OnGpu(x.device(), [&](const GpuCall& call) {
      return LaunchTopK(call, lines, k, x.raw(), args.out[0].raw(), args.out[1].raw());
    });
  }
  int64_t* const indices = args.Out<int64_t>(1);
  VisitFloat(args.in[0]->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = args.In<T>(0);
    T* const values = args.Out<T>(0);
    ForRows(args.out[0].numel() / k, n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        TopOfRow(x + r * n, n, k, values + r * k, indices + r * k);
      }
    });
  });
  return absl::OkStatus();
}

Tensors Grad(const GradArgs& g) { return {ScatterAdd(g.in_spec(0).shape, -1, g.out(1), g.dy())}; }

}  // namespace

constinit const OpDef kTopK = {
    .name = "topk",
    .attrs = TopKAttrs::Fields,
    .infer = Infer,
    .cost = Price,
    .kernel = {.cpu = Run, .cuda = Run},
    .grads = {{.of = {0}, .reads = Out(1), .fn = Grad}},
};

TopKResult TopK(const Tensor& x, int64_t k) {
  const TensorArg arg(x);
  Tensors out = ApplyAll(kTopK, absl::MakeConstSpan(&arg, 1), TopKAttrs{k});
  return {std::move(out[0]), std::move(out[1])};
}

OpFamily TopKOps() {
  static const OpDef* const kOps[] = {&kTopK};
  return kOps;
}

}  // namespace tally
