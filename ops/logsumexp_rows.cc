#include "tally/ops/logsumexp_rows.h"

#include <algorithm>
#include <cmath>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/logsumexp_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

#ifndef TALLY_OPS_LOGSUMEXP_ROWS_ONCE_
#define TALLY_OPS_LOGSUMEXP_ROWS_ONCE_
namespace tally {

// Columns side by side that are worked on together: their maxima and sums stay in the nearest
// cache.
inline constexpr int64_t kLogSumExpColumns = 256;

inline int64_t LogSumExpTiles(const LogSumExpRows& a) {
  return (a.inner + kLogSumExpColumns - 1) / kLogSumExpColumns;
}

// `sum` is of e^(x - top). An infinite top is the result: inf - inf would be NaN.
template <typename C>
C LogSumExpOf(C top, C sum) {
  return std::isinf(top) ? top : top + std::log(sum);
}

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// k elements; the other lanes are -inf, which adds nothing.
template <class D, typename T>
HWY_INLINE hn::Vec<D> LoadTerms(D d, const T* x, size_t k) {
  return LoadSome(d, x, k, -std::numeric_limits<hn::TFromD<D>>::infinity());
}

template <typename T>
T LogSumExpRow(const T* x, size_t n) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const C top = FoldVectors<MaxFold>(
      d, 0, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA { return LoadTerms(d, x + i, k); });
  const auto shift = hn::Set(d, top);
  const C sum = SumVectors(d, n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    return ExpNegative(d, hn::Sub(LoadTerms(d, x + i, k), shift));
  });
  return Store<T>(LogSumExpOf(top, sum));
}

// `width` columns, `a.inner` elements from one position of the axis to the next.
template <typename T>
void LogSumExpColumns(const T* x, const LogSumExpRows& a, size_t width, T* y) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const MaxFold max;
  HWY_ALIGN C tops[kLogSumExpColumns], sums[kLogSumExpColumns];
  std::fill(tops, tops + kLogSumExpColumns, MaxFold::Identity<C>());
  std::fill(sums, sums + kLogSumExpColumns, C());
  for (int64_t i = 0; i < a.n * a.inner; i += a.inner) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      hn::Store(max(hn::Load(d, tops + j), LoadTerms(d, x + i + j, k)), d, tops + j);
    });
  }
  for (int64_t i = 0; i < a.n * a.inner; i += a.inner) {
    ForVectors(d, width, [&](size_t j, size_t k) TALLY_ROW_LAMBDA {
      const auto e = ExpNegative(d, hn::Sub(LoadTerms(d, x + i + j, k), hn::Load(d, tops + j)));
      hn::Store(hn::Add(hn::Load(d, sums + j), e), d, sums + j);
    });
  }
  for (size_t j = 0; j < width; ++j) y[j] = Store<T>(LogSumExpOf(tops[j], sums[j]));
}

// Tasks are rows, or tiles of columns: task = outer * tiles + tile.
void LogSumExpTasks(const LogSumExpRows& a, int64_t begin, int64_t end) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = static_cast<const T*>(a.x);
    T* y = static_cast<T*>(a.y);
    const int64_t tiles = LogSumExpTiles(a);
    for (int64_t task = begin; task < end; ++task) {
      if (a.inner == 1) {
        y[task] = LogSumExpRow(x + task * a.n, a.n);
        continue;
      }
      const int64_t outer = task / tiles, column = task % tiles * kLogSumExpColumns;
      LogSumExpColumns(x + outer * a.n * a.inner + column, a,
                       std::min(kLogSumExpColumns, a.inner - column), y + outer * a.inner + column);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(LogSumExpTasks);

void RunLogSumExpRows(const LogSumExpRows& a) {
  ForRows(a.outer * LogSumExpTiles(a), a.n * std::min(a.inner, kLogSumExpColumns),
          [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(LogSumExpTasks)
                                            (a, begin, end); });
}

}  // namespace tally
#endif  // HWY_ONCE
