#include "tally/ops/cross_entropy_rows.h"

#include <algorithm>
#include <cmath>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/cross_entropy_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// log sum e^x of a row.
template <typename T>
ComputeType<T> LogSumExp(const T* x, size_t n) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const C lowest = MaxFold::Identity<C>();
  const C top = FoldVectors<MaxFold>(
      d, 0, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA { return LoadSome(d, x + i, k, lowest); });
  if (std::isinf(top)) return top;  // all -inf: -inf; some +inf: +inf
  const auto shift = hn::Set(d, top);
  const C sum = SumVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    return ExpNegative(d, hn::Sub(LoadSome(d, x + i, k, lowest), shift));
  });
  return top + std::log(sum);
}

template <typename T>
double RowLoss(const CrossEntropyRows& a, const T* x, int64_t target, ComputeType<T> lse) {
  const double picked = Load(x[target]);
  if (a.smoothing == 0) return lse - picked;
  const RowTag<T> d;
  const double sum = SumVectors(
      d, a.classes, [&](size_t i, size_t k) TALLY_ROW_LAMBDA { return LoadSome(d, x + i, k, 0); });
  const double each = a.smoothing / static_cast<double>(a.classes);
  return lse - (1 - a.smoothing) * picked - each * sum;
}

template <typename T>
void CrossEntropyOf(const CrossEntropyRows& a, int64_t begin, int64_t end, ComputeType<T>* lse,
                    double* losses) {
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(a.logits) + r * a.classes;
    lse[r] = LogSumExp(x, a.classes);
    const int64_t target = a.targets[r];
    losses[r] = target == a.ignore_index ? 0 : RowLoss(a, x, target, lse[r]);
  }
}

// dx = (e^(x - lse) - smoothing / C - (1 - smoothing) [c = target]) scale.
template <typename T>
void CrossEntropyGradOf(const CrossEntropyRows& a, int64_t begin, int64_t end,
                        const ComputeType<T>* lse, double scale, T* out) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const C each = static_cast<C>(a.smoothing / static_cast<double>(a.classes));
  const C s = static_cast<C>(scale);
  const auto each_v = hn::Set(d, each), scale_v = hn::Set(d, s);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(a.logits) + r * a.classes;
    T* dx = out + r * a.classes;
    const int64_t target = a.targets[r];
    if (target == a.ignore_index) {
      std::fill(dx, dx + a.classes, T());
      continue;
    }
    const auto shift = hn::Set(d, lse[r]);
    ForVectors(d, a.classes, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto p = ExpNegative(d, hn::Sub(LoadSome(d, x + i, k, 0), shift));
      StoreSome(hn::Mul(hn::Sub(p, each_v), scale_v), d, dx + i, k);
    });
    const C p = hn::GetLane(ExpNegative(d, hn::Set(d, Load(x[target]) - lse[r])));
    dx[target] = Store<T>((p - each - static_cast<C>(1 - a.smoothing)) * s);
  }
}

void CrossEntropyTasks(const CrossEntropyRows& a, int64_t begin, int64_t end, void* lse,
                       double* losses) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    CrossEntropyOf<T>(a, begin, end, static_cast<ComputeType<T>*>(lse), losses);
  });
}

void CrossEntropyGradTasks(const CrossEntropyRows& a, int64_t begin, int64_t end, const void* lse,
                           double scale, void* dlogits) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    CrossEntropyGradOf<T>(a, begin, end, static_cast<const ComputeType<T>*>(lse), scale,
                          static_cast<T*>(dlogits));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(CrossEntropyTasks);
HWY_EXPORT(CrossEntropyGradTasks);

void RunCrossEntropyRows(const CrossEntropyRows& a, void* lse, double* losses) {
  ForRows(a.rows, a.classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CrossEntropyTasks)(a, begin, end, lse, losses);
  });
}

void RunCrossEntropyGradRows(const CrossEntropyRows& a, const void* lse, double scale,
                             void* dlogits) {
  ForRows(a.rows, a.classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CrossEntropyGradTasks)(a, begin, end, lse, scale, dlogits);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
