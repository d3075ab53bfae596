#include "tally/ops/norm_rows.h"

#include <algorithm>
#include <cmath>

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

template <typename T>
void NormRowsOf(const NormRows& a, double eps, int64_t begin, int64_t end, T* y,
                NormStats<T> stats) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const T* weight = static_cast<const T*>(a.weight);
  const T* bias = static_cast<const T*>(a.bias);
  const C n = static_cast<C>(a.n);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(a.x) + r * a.n;
    T* to = y + r * a.n;
    const C mean =
        SumVectors(d, a.n,
                   [&](size_t i, size_t k) TALLY_ROW_LAMBDA { return LoadSome(d, x + i, k, 0); }) /
        n;
    const auto m = hn::Set(d, mean);
    const C squares = SumVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = hn::Sub(LoadSome(d, x + i, k, mean), m);
      return hn::Mul(v, v);
    });
    const C rstd = 1 / std::sqrt(squares / n + static_cast<C>(eps));
    stats.mean[r] = mean;
    stats.rstd[r] = rstd;
    const auto s = hn::Set(d, rstd);
    ForVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      auto h = hn::Mul(hn::Sub(LoadSome(d, x + i, k, 0), m), s);
      if (weight != nullptr) {
        h = hn::MulAdd(h, LoadSome(d, weight + i, k, 0), LoadSome(d, bias + i, k, 0));
      }
      StoreSome(h, d, to + i, k);
    });
  }
}

// dx = rstd (g - mean(g) - h mean(g h)) with g = dy w.
template <typename T>
void NormGradRowsOf(const NormRows& a, int64_t begin, int64_t end, NormInputs<T> in, T* dx) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const T* weight = static_cast<const T*>(a.weight);
  const C n = static_cast<C>(a.n);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(a.x) + r * a.n;
    const T* dy = in.dy + r * a.n;
    T* to = dx + r * a.n;
    const auto m = hn::Set(d, in.mean[r]), s = hn::Set(d, in.rstd[r]);
    const auto g_at = [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = LoadSome(d, dy + i, k, 0);
      return weight == nullptr ? v : hn::Mul(v, LoadSome(d, weight + i, k, 0));
    };
    const auto h_at = [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      return hn::Mul(hn::Sub(LoadSome(d, x + i, k, 0), m), s);
    };
    const C sum_g = SumVectors(d, a.n, g_at);
    const C sum_gh = SumVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      return hn::Mul(g_at(i, k), h_at(i, k));
    });
    const auto mean_g = hn::Set(d, sum_g / n), mean_gh = hn::Set(d, sum_gh / n);
    ForVectors(d, a.n, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
      const auto v = hn::NegMulAdd(h_at(i, k), mean_gh, hn::Sub(g_at(i, k), mean_g));
      StoreSome(hn::Mul(v, s), d, to + i, k);
    });
  }
}

// Rows of one block, a tile of columns at a time so that the sums stay in the nearest cache.
template <typename T>
void NormParamGradOf(const NormRows& a, int64_t block, NormInputs<T> in, ComputeType<T>* dw,
                     ComputeType<T>* db) {
  using C = ComputeType<T>;
  const RowTag<T> d;
  const int64_t kTile = 1024, last = std::min(a.rows, (block + 1) * kNormBlock);
  for (int64_t j = 0; j < a.n; j += kTile) {
    const size_t width = std::min(kTile, a.n - j);
    C* w = dw + block * a.n + j;
    C* b = db + block * a.n + j;
    std::fill(w, w + width, C());
    std::fill(b, b + width, C());
    for (int64_t r = block * kNormBlock; r < last; ++r) {
      const T* x = static_cast<const T*>(a.x) + r * a.n + j;
      const T* dy = in.dy + r * a.n + j;
      const auto m = hn::Set(d, in.mean[r]), s = hn::Set(d, in.rstd[r]);
      ForVectors(d, width, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
        const auto v = LoadSome(d, dy + i, k, 0);
        const auto h = hn::Mul(hn::Sub(LoadSome(d, x + i, k, 0), m), s);
        StoreSome(hn::MulAdd(v, h, LoadSome(d, w + i, k, 0)), d, w + i, k);
        StoreSome(hn::Add(v, LoadSome(d, b + i, k, 0)), d, b + i, k);
      });
    }
  }
}

void NormTasks(const NormRows& a, double eps, int64_t begin, int64_t end, void* y, void* mean,
               void* rstd) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    NormRowsOf<T>(a, eps, begin, end, static_cast<T*>(y),
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
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    NormGradRowsOf<T>(a, begin, end, InputsOf<T>(dy, mean, rstd), static_cast<T*>(dx));
  });
}

void NormParamGradTasks(const NormRows& a, int64_t begin, int64_t end, const void* dy,
                        const void* mean, const void* rstd, void* dw, void* db) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    for (int64_t block = begin; block < end; ++block) {
      NormParamGradOf<T>(a, block, InputsOf<T>(dy, mean, rstd), static_cast<C*>(dw),
                         static_cast<C*>(db));
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
