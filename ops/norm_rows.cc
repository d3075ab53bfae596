#include "tally/ops/norm_rows.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/norm_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// mean and rstd of each row, as they come.
template <typename T>
struct NormStats {
  ComputeType<T>* mean;
  ComputeType<T>* rstd;
};
template <typename T>
struct NormInputs {
  const T* dy;
  const ComputeType<T>* mean;
  const ComputeType<T>* rstd;
};

// What h is multiplied by: w, and without centring offset + w.
template <bool kCentered, typename T, class D>
HWY_INLINE hn::Vec<D> ScaleAt(D d, const NormRows& a, size_t i, size_t k) {
  const auto w = LoadSome(d, static_cast<const T*>(a.weight) + i, k, 0);
  if constexpr (kCentered) return w;
  return hn::Add(w, hn::Set(d, static_cast<hn::TFromD<D>>(a.offset)));
}

template <bool kCentered, typename T>
void NormRowsOf(const NormRows& a, double eps, int64_t begin, int64_t end, T* y,
                NormStats<T> stats) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const T* bias = static_cast<const T*>(a.bias);
  const C n = static_cast<C>(a.n);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(a.x) + r * a.n;
    T* to = y + r * a.n;
    C mean = 0;
    if constexpr (kCentered) {
      mean = SumVectors(d, a.n,
                        [&](size_t i, size_t k)
                            TALLY_ROW_LAMBDA { return LoadSome(d, x + i, k, 0); }) /
             n;
      stats.mean[r] = mean;
    }
    const auto m = hn::Set(d, mean);
    // 0 beyond the row.
    const auto centered = [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, x + i, k, mean);
      return kCentered ? hn::Sub(v, m) : v;
    };
    const C squares = SumVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = centered(i, k);
      return hn::Mul(v, v);
    });
    const C rstd = 1 / std::sqrt(squares / n + static_cast<C>(eps));
    stats.rstd[r] = rstd;
    const auto s = hn::Set(d, rstd);
    ForVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      auto h = hn::Mul(centered(i, k), s);
      if (a.weight != nullptr) {
        const auto w = ScaleAt<kCentered, T>(d, a, i, k);
        h = kCentered ? hn::MulAdd(h, w, LoadSome(d, bias + i, k, 0)) : hn::Mul(h, w);
      }
      StoreSome(h, d, to + i, k);
    });
  }
}

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy w; without centring rstd (g - h mean(g h)).
template <bool kCentered, typename T>
void NormGradRowsOf(const NormRows& a, int64_t begin, int64_t end, NormInputs<T> in, T* dx) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const C n = static_cast<C>(a.n);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(a.x) + r * a.n;
    const T* dy = in.dy + r * a.n;
    T* to = dx + r * a.n;
    const auto m = hn::Set(d, kCentered ? in.mean[r] : C(0)), s = hn::Set(d, in.rstd[r]);
    const auto g_at = [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, dy + i, k, 0);
      return a.weight == nullptr ? v : hn::Mul(v, ScaleAt<kCentered, T>(d, a, i, k));
    };
    const auto h_at = [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, x + i, k, 0);
      return hn::Mul(kCentered ? hn::Sub(v, m) : v, s);
    };
    const C sum_g = kCentered ? SumVectors(d, a.n, g_at) : C(0);
    const C sum_gh = SumVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      return hn::Mul(g_at(i, k), h_at(i, k));
    });
    const auto mean_g = hn::Set(d, sum_g / n), mean_gh = hn::Set(d, sum_gh / n);
    ForVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto g = kCentered ? hn::Sub(g_at(i, k), mean_g) : g_at(i, k);
      StoreSome(hn::Mul(hn::NegMulAdd(h_at(i, k), mean_gh, g), s), d, to + i, k);
    });
  }
}

// Rows of one block, a tile of columns at a time so that the sums stay in the nearest cache.
template <bool kCentered, typename T>
void NormParamGradOf(const NormRows& a, int64_t block, NormInputs<T> in, ComputeType<T>* dw,
                     ComputeType<T>* db) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const int64_t kTile = 1024, last = std::min(a.rows, (block + 1) * kNormBlock);
  for (int64_t j = 0; j < a.n; j += kTile) {
    const size_t width = std::min(kTile, a.n - j);
    C* w = dw + block * a.n + j;
    C* b = kCentered ? db + block * a.n + j : nullptr;
    std::fill(w, w + width, C());
    if constexpr (kCentered) std::fill(b, b + width, C());
    for (int64_t r = block * kNormBlock; r < last; ++r) {
      const T* x = static_cast<const T*>(a.x) + r * a.n + j;
      const T* dy = in.dy + r * a.n + j;
      const auto m = hn::Set(d, kCentered ? in.mean[r] : C(0)), s = hn::Set(d, in.rstd[r]);
      ForVectors(d, width, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
        const auto v = LoadSome(d, dy + i, k, 0), at = LoadSome(d, x + i, k, 0);
        const auto h = hn::Mul(kCentered ? hn::Sub(at, m) : at, s);
        StoreSome(hn::MulAdd(v, h, LoadSome(d, w + i, k, 0)), d, w + i, k);
        if constexpr (kCentered) {
          StoreSome(hn::Add(v, LoadSome(d, b + i, k, 0)), d, b + i, k);
        }
      });
    }
  }
}

// fn(element tag, true_type or false_type)
template <class Fn>
void VisitNorm(DType dtype, bool centered, const Fn& fn) {
  VisitFloat(dtype,
             [&](auto tag) { centered ? fn(tag, std::true_type()) : fn(tag, std::false_type()); });
}

void NormTasks(const NormRows& a, double eps, int64_t begin, int64_t end, void* y, void* mean,
               void* rstd) {
  VisitNorm(a.dtype, mean != nullptr, [&](auto tag, auto centered) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    NormRowsOf<decltype(centered)::value, T>(a, eps, begin, end, static_cast<T*>(y),
                                             {static_cast<C*>(mean), static_cast<C*>(rstd)});
  });
}

template <typename T>
NormInputs<T> InputsOf(const void* dy, const void* mean, const void* rstd) {
  using C = ComputeType<T>;
  return {static_cast<const T*>(dy), static_cast<const C*>(mean), static_cast<const C*>(rstd)};
}

void NormGradTasks(const NormRows& a, int64_t begin, int64_t end, const void* dy, const void* mean,
                   const void* rstd, void* dx) {
  VisitNorm(a.dtype, mean != nullptr, [&](auto tag, auto centered) {
    using T = typename decltype(tag)::type;
    NormGradRowsOf<decltype(centered)::value, T>(a, begin, end, InputsOf<T>(dy, mean, rstd),
                                                 static_cast<T*>(dx));
  });
}

void NormParamGradTasks(const NormRows& a, int64_t begin, int64_t end, const void* dy,
                        const void* mean, const void* rstd, void* dw, void* db) {
  VisitNorm(a.dtype, mean != nullptr, [&](auto tag, auto centered) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    for (int64_t block = begin; block < end; ++block) {
      NormParamGradOf<decltype(centered)::value, T>(a, block, InputsOf<T>(dy, mean, rstd),
                                                    static_cast<C*>(dw), static_cast<C*>(db));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(NormTasks);
HWY_EXPORT(NormGradTasks);
HWY_EXPORT(NormParamGradTasks);

void RunNormRows(const NormRows& a, double eps, void* y, void* mean, void* rstd) {
  ForRows(a.rows, a.n, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormTasks)(a, eps, begin, end, y, mean, rstd);
  });
}

void RunNormGradRows(const NormRows& a, const void* dy, const void* mean, const void* rstd,
                     void* dx) {
  ForRows(a.rows, a.n, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormGradTasks)(a, begin, end, dy, mean, rstd, dx);
  });
}

void RunNormParamGradBlocks(const NormRows& a, const void* dy, const void* mean, const void* rstd,
                            void* dw, void* db) {
  ForRows(NormBlocks(a.rows), kNormBlock * a.n, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(NormParamGradTasks)(a, begin, end, dy, mean, rstd, dw, db);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
