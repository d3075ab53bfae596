#include "tally/ops/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/softmax_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

#ifndef TALLY_OPS_SOFTMAX_ROWS_ONCE_
#define TALLY_OPS_SOFTMAX_ROWS_ONCE_
namespace tally {

// Columns side by side that are worked on together: their maxima and sums stay in the nearest
// cache.
inline constexpr int64_t kColumns = 256;

inline int64_t SoftmaxTiles(const SoftmaxRows& a) { return (a.inner + kColumns - 1) / kColumns; }

}  // namespace tally
#endif

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

// Columns side by side that are worked on together: their maxima and sums stay in the nearest
// cache.
inline constexpr int64_t kColumns = 256;

// The same down `width` <= kColumns columns, `inner` elements from one position of the axis to the
// next.
template <bool kLog, typename T>
void SoftmaxColumns(const T* x, const SoftmaxRows& a, size_t width, T* y) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const MaxFold max;
  const auto s = hn::Set(d, static_cast<C>(a.scale));
  HWY_ALIGN C tops[kColumns], sums[kColumns];
  std::fill(tops, tops + kColumns, MaxFold::Identity<C>());
  std::fill(sums, sums + kColumns, C());
  const auto shifted = [&](int64_t i, size_t j, size_t k) TALLY_ROW_LAMBDA {
    return hn::Sub(LoadScaled(d, x + i * a.inner + j, k, s), hn::Load(d, tops + j));
  };
  for (int64_t i = 0; i < a.n; ++i) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadScaled(d, x + i * a.inner + j, k, s);
      hn::Store(max(hn::Load(d, tops + j), v), d, tops + j);
    });
  }
  for (int64_t i = 0; i < a.n; ++i) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      const auto e = ExpNegative(d, shifted(i, j, k));
      hn::Store(hn::Add(hn::Load(d, sums + j), e), d, sums + j);
    });
  }
  for (size_t j = 0; j < width; ++j) sums[j] = kLog ? std::log(sums[j]) : 1 / sums[j];
  for (int64_t i = 0; i < a.n; ++i) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      const auto v = shifted(i, j, k), last = hn::Load(d, sums + j);
      const auto result = kLog ? hn::Sub(v, last) : hn::Mul(ExpNegative(d, v), last);
      StoreSome(result, d, y + i * a.inner + j, k);
    });
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
void SoftmaxGradColumns(const T* y, const T* dy, const SoftmaxRows& a, size_t width, T* dx) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const auto s = hn::Set(d, static_cast<C>(a.scale));
  HWY_ALIGN C sums[kColumns];
  std::fill(sums, sums + kColumns, C());
  for (int64_t i = 0; i < a.n * a.inner; i += a.inner) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, y + i + j, k, 0), dv = LoadSome(d, dy + i + j, k, 0);
      hn::Store(hn::Add(hn::Load(d, sums + j), GradTerm<kLog>(d, v, dv)), d, sums + j);
    });
  }
  for (int64_t i = 0; i < a.n * a.inner; i += a.inner) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, y + i + j, k, 0), dv = LoadSome(d, dy + i + j, k, 0);
      StoreSome(GradResult<kLog>(d, v, dv, hn::Load(d, sums + j), s), d, dx + i + j, k);
    });
  }
}

// Tasks are rows, or tiles of columns: task = outer * tiles + tile.
template <bool kLog, typename T>
void SoftmaxTasksOf(const SoftmaxRows& a, const T* x, T* y, int64_t begin, int64_t end) {
  const int64_t tiles = SoftmaxTiles(a);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t column = task % tiles * kColumns;
    const int64_t first = task / tiles * a.n * a.inner + column;
    if (a.inner > 1) {
      SoftmaxColumns<kLog>(x + first, a, std::min(kColumns, a.inner - column), y + first);
      continue;
    }
    const KeyRange seen = a.Seen(task);
    const int64_t from = first + seen.begin, count = seen.end - seen.begin;
    std::fill(y + first, y + from, T());
    if (count > 0) SoftmaxRow<kLog>(x + from, count, a.scale, y + from);
    std::fill(y + from + count, y + first + a.n, T());
  }
}

template <bool kLog, typename T>
void SoftmaxGradTasksOf(const SoftmaxRows& a, const T* y, const T* dy, T* dx, int64_t begin,
                        int64_t end) {
  const int64_t tiles = SoftmaxTiles(a);
  for (int64_t task = begin; task < end; ++task) {
    const int64_t column = task % tiles * kColumns;
    const int64_t first = task / tiles * a.n * a.inner + column;
    if (a.inner > 1) {
      const int64_t width = std::min(kColumns, a.inner - column);
      SoftmaxGradColumns<kLog>(y + first, dy + first, a, width, dx + first);
      continue;
    }
    const KeyRange seen = a.Seen(task);
    const int64_t from = first + seen.begin, count = seen.end - seen.begin;
    std::fill(dx + first, dx + from, T());
    if (count > 0) SoftmaxGradRow<kLog>(y + from, dy + from, count, a.scale, dx + from);
    std::fill(dx + from + count, dx + first + a.n, T());
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
  ForRows(s.outer * SoftmaxTiles(s), s.n * std::min(s.inner, kColumns),
          [&](int64_t begin, int64_t end) {
            HWY_DYNAMIC_DISPATCH(SoftmaxTasks)(s, x, y, begin, end);
          });
}

void RunSoftmaxGradRows(const SoftmaxRows& s, const void* y, const void* dy, void* dx) {
  ForRows(s.outer * SoftmaxTiles(s), s.n * std::min(s.inner, kColumns),
          [&](int64_t begin, int64_t end) {
            HWY_DYNAMIC_DISPATCH(SoftmaxGradTasks)(s, y, dy, dx, begin, end);
          });
}

}  // namespace tally
#endif  // HWY_ONCE
