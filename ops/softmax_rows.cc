#include "tally/ops/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/softmax_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// The vectors below are either k neighbours in a row, or k columns side by side at one position of
// the axis. Entries beyond k count as masked.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadScaled(D d, const T* x, size_t k, hn::Vec<D> scale) {
  const auto v = hn::Mul(LoadSome(d, x, k, 0), scale);
  if (k == hn::Lanes(d)) return v;
  const auto masked = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  return hn::IfThenElse(hn::FirstN(d, k), v, masked);
}

// The exponentials are kept in y by the pass that sums them, where y holds them without rounding.
template <typename T>
inline constexpr bool kKeepsExp = std::is_same_v<T, ComputeType<T>>;

template <bool kLog, typename T>
void SoftmaxRow(const T* x, size_t n, double scale, T* y) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const auto s = hn::Set(d, static_cast<C>(scale));
  const auto top =
      hn::Set(d, FoldVectors<MaxFold>(d, 0, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
                return LoadScaled(d, x + i, k, s);
              }));
  const C sum = SumVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    const auto e = ExpNegative(d, hn::Sub(LoadScaled(d, x + i, k, s), top));
    if constexpr (kKeepsExp<T> && !kLog) StoreSome(e, d, y + i, k);
    return e;
  });
  const auto last = hn::Set(d, kLog ? std::log(sum) : 1 / sum);
  ForVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    if constexpr (kLog) {
      StoreSome(hn::Sub(hn::Sub(LoadScaled(d, x + i, k, s), top), last), d, y + i, k);
    } else if constexpr (kKeepsExp<T>) {
      StoreSome(hn::Mul(LoadSome(d, y + i, k, 0), last), d, y + i, k);
    } else {
      const auto e = ExpNegative(d, hn::Sub(LoadScaled(d, x + i, k, s), top));
      StoreSome(hn::Mul(e, last), d, y + i, k);
    }
  });
}

// The same down k <= Lanes columns, `inner` elements from one position of the axis to the next.
template <bool kLog, typename T>
void SoftmaxColumns(const T* x, int64_t n, int64_t inner, size_t k, double scale, T* y) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const MaxFold max;
  const SumFold add;
  const auto s = hn::Set(d, static_cast<C>(scale));
  auto top = hn::Set(d, MaxFold::Identity<C>());
  for (int64_t i = 0; i < n; ++i) top = max(top, LoadScaled(d, x + i * inner, k, s));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; ++i) {
    sum = add(sum, ExpNegative(d, hn::Sub(LoadScaled(d, x + i * inner, k, s), top)));
  }
  HWY_ALIGN C lanes[hn::MaxLanes(d)];
  hn::Store(sum, d, lanes);
  for (C& lane : lanes) lane = kLog ? std::log(lane) : 1 / lane;
  const auto last = hn::Load(d, lanes);
  for (int64_t i = 0; i < n; ++i) {
    const auto v = hn::Sub(LoadScaled(d, x + i * inner, k, s), top);
    if constexpr (kLog) {
      StoreSome(hn::Sub(v, last), d, y + i * inner, k);
    } else {
      StoreSome(hn::Mul(ExpNegative(d, v), last), d, y + i * inner, k);
    }
  }
}

// What multiplies the sum, and the result. softmax: sum of y dy, dx = (dy - sum) y scale.
// log_softmax: sum of dy, dx = dy - e^y sum.
template <bool kLog, class D>
HWY_INLINE hn::Vec<D> GradTerm(D, hn::Vec<D> y, hn::Vec<D> dy) {
  return kLog ? dy : hn::Mul(y, dy);
}
template <bool kLog, class D>
HWY_INLINE hn::Vec<D> GradResult(D d, hn::Vec<D> y, hn::Vec<D> dy, hn::Vec<D> sum,
                                 hn::Vec<D> scale) {
  if constexpr (kLog) return hn::NegMulAdd(ExpNegative(d, y), sum, dy);
  return hn::Mul(hn::Mul(hn::Sub(dy, sum), y), scale);
}

template <bool kLog, typename T>
void SoftmaxGradRow(const T* y, const T* dy, size_t n, double scale, T* dx) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const auto s = hn::Set(d, static_cast<C>(scale));
  const auto sum =
      hn::Set(d, SumVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
                return GradTerm<kLog>(d, LoadSome(d, y + i, k, 0), LoadSome(d, dy + i, k, 0));
              }));
  ForVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    const auto v = LoadSome(d, y + i, k, 0), dv = LoadSome(d, dy + i, k, 0);
    StoreSome(GradResult<kLog>(d, v, dv, sum, s), d, dx + i, k);
  });
}

template <bool kLog, typename T>
void SoftmaxGradColumns(const T* y, const T* dy, const SoftmaxRows& a, size_t k, T* dx) {
  const RowTag<T> d;
  const SumFold add;
  const auto s = hn::Set(d, static_cast<ComputeType<T>>(a.scale));
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < a.n * a.inner; i += a.inner) {
    sum = add(sum, GradTerm<kLog>(d, LoadSome(d, y + i, k, 0), LoadSome(d, dy + i, k, 0)));
  }
  for (int64_t i = 0; i < a.n * a.inner; i += a.inner) {
    const auto v = LoadSome(d, y + i, k, 0), dv = LoadSome(d, dy + i, k, 0);
    StoreSome(GradResult<kLog>(d, v, dv, sum, s), d, dx + i, k);
  }
}

template <bool kLog, typename T>
void SoftmaxTasksOf(const SoftmaxRows& a, const T* x, T* y, int64_t begin, int64_t end) {
  const RowTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = begin; r < end; ++r) {
    const T* from = x + r * a.n * a.inner;
    T* to = y + r * a.n * a.inner;
    if (a.inner == 1) {
      const int64_t seen = a.Seen(r);
      if (seen > 0) SoftmaxRow<kLog>(from, seen, a.scale, to);
      std::fill(to + seen, to + a.n, T());
    }
    for (int64_t j = 0; a.inner > 1 && j < a.inner; j += lanes) {
      const size_t k = std::min(lanes, a.inner - j);
      SoftmaxColumns<kLog>(from + j, a.n, a.inner, k, a.scale, to + j);
    }
  }
}

template <bool kLog, typename T>
void SoftmaxGradTasksOf(const SoftmaxRows& a, const T* y, const T* dy, T* dx, int64_t begin,
                        int64_t end) {
  const RowTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t first = r * a.n * a.inner;
    if (a.inner == 1) {
      const int64_t seen = a.Seen(r);
      if (seen > 0) SoftmaxGradRow<kLog>(y + first, dy + first, seen, a.scale, dx + first);
      std::fill(dx + first + seen, dx + first + a.n, T());
    }
    for (int64_t j = 0; a.inner > 1 && j < a.inner; j += lanes) {
      const size_t k = std::min(lanes, a.inner - j);
      SoftmaxGradColumns<kLog>(y + first + j, dy + first + j, a, k, dx + first + j);
    }
  }
}

void SoftmaxTasks(const SoftmaxRows& a, const void* x, void* y, int64_t begin, int64_t end) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto tasks = a.log ? SoftmaxTasksOf<true, T> : SoftmaxTasksOf<false, T>;
    tasks(a, static_cast<const T*>(x), static_cast<T*>(y), begin, end);
  });
}

void SoftmaxGradTasks(const SoftmaxRows& a, const void* y, const void* dy, void* dx, int64_t begin,
                      int64_t end) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto tasks = a.log ? SoftmaxGradTasksOf<true, T> : SoftmaxGradTasksOf<false, T>;
    tasks(a, static_cast<const T*>(y), static_cast<const T*>(dy), static_cast<T*>(dx), begin, end);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(SoftmaxTasks);
HWY_EXPORT(SoftmaxGradTasks);

void RunSoftmaxRows(const SoftmaxRows& s, const void* x, void* y) {
  ForRows(s.outer, s.n * s.inner, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SoftmaxTasks)(s, x, y, begin, end);
  });
}

void RunSoftmaxGradRows(const SoftmaxRows& s, const void* y, const void* dy, void* dx) {
  ForRows(s.outer, s.n * s.inner, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SoftmaxGradTasks)(s, y, dy, dx, begin, end);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
