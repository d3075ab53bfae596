#include "tally/ops/pool_planes.h"

#include <cmath>
#include <limits>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/pool_planes.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

// The loops over columns are plain: the compiler makes vectors of them for each target, with the
// strides that windows have.
HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

constexpr int64_t kPoolTile = 256;  // columns of a row worked on at a time

// Columns of the tile [first, first + width) that read x through tap j.
struct TileColumns {
  int64_t begin, end;
};
inline TileColumns ColumnsOf(const WindowAxis& w, int64_t j, int64_t first, int64_t width) {
  const int64_t begin = std::clamp(w.begin(j), first, first + width);
  return {begin, std::clamp(w.end(j), begin, first + width)};
}

// fn(step) with the strides that most windows have as constants.
template <class Fn>
HWY_INLINE void WithStep(int64_t step, const Fn& fn) {
  if (step == 1) {
    fn(std::integral_constant<int64_t, 1>());
  } else if (step == 2) {
    fn(std::integral_constant<int64_t, 2>());
  } else {
    fn(step);
  }
}

// One row of y, columns [first, first + width): the best so far and the tap it came by, -1 for
// none.
template <typename T>
void MaxTile(const PoolPlanes& p, const T* x, int64_t row, int64_t first, int64_t width,
             ComputeType<T>* best, int32_t* from) {
  using C = ComputeType<T>;
  std::fill(best, best + width, -std::numeric_limits<C>::infinity());
  std::fill(from, from + width, -1);
  for (int64_t i = 0; i < p.h.kernel; ++i) {
    const int64_t r = row * p.h.stride + p.h.offset(i);
    if (r < 0 || r >= p.h.in) continue;
    for (int64_t j = 0; j < p.w.kernel; ++j) {
      const auto [begin, end] = ColumnsOf(p.w, j, first, width);
      const T* in = x + r * p.w.in + begin * p.w.stride + p.w.offset(j);
      C* b = best + (begin - first);
      int32_t* f = from + (begin - first);
      const int64_t count = end - begin;
      const int32_t tap = static_cast<int32_t>(i * p.w.kernel + j);
      WithStep(p.w.stride, [=](auto step) TALLY_ROW_LAMBDA {
        for (int64_t k = 0; k < count; ++k) {
          const C v = Load(in[k * step]);
          const bool better = (v > b[k]) | ((v != v) & (b[k] == b[k])) | (f[k] < 0);
          b[k] = better ? v : b[k];
          f[k] = better ? tap : f[k];
        }
      });
    }
  }
}

template <typename T>
void MaxPlanes(const PoolPlanes& p, int64_t begin, int64_t end, const T* x, T* y, int64_t* index) {
  using C = ComputeType<T>;
  C best[kPoolTile];
  int32_t from[kPoolTile];
  for (int64_t plane = begin; plane < end; ++plane) {
    for (int64_t row = 0; row < p.h.out; ++row) {
      const int64_t at = (plane * p.h.out + row) * p.w.out;
      for (int64_t first = 0; first < p.w.out; first += kPoolTile) {
        const int64_t width = std::min(kPoolTile, p.w.out - first);
        MaxTile(p, x + plane * p.h.in * p.w.in, row, first, width, best, from);
        const uint32_t kernel = static_cast<uint32_t>(p.w.kernel);
        for (int64_t k = 0; k < width; ++k) {
          const uint32_t tap = static_cast<uint32_t>(from[k]);  // 32 bits divide faster
          const int64_t r = row * p.h.stride + p.h.offset(tap / kernel);
          const int64_t c = (first + k) * p.w.stride + p.w.offset(tap % kernel);
          y[at + first + k] = Store<T>(best[k]);
          index[at + first + k] = r * p.w.in + c;
        }
      }
    }
  }
}

template <typename T>
void AvgPlanes(const PoolPlanes& p, int64_t begin, int64_t end, const T* x, T* y) {
  using C = ComputeType<T>;
  C sum[kPoolTile];
  for (int64_t plane = begin; plane < end; ++plane) {
    for (int64_t row = 0; row < p.h.out; ++row) {
      const int64_t high = WindowCount(p.h, row, p.count_include_pad);
      for (int64_t first = 0; first < p.w.out; first += kPoolTile) {
        const int64_t width = std::min(kPoolTile, p.w.out - first);
        std::fill(sum, sum + width, C());
        for (int64_t i = 0; i < p.h.kernel; ++i) {
          const int64_t r = row * p.h.stride + p.h.offset(i);
          if (r < 0 || r >= p.h.in) continue;
          for (int64_t j = 0; j < p.w.kernel; ++j) {
            const auto [b, e] = ColumnsOf(p.w, j, first, width);
            const T* in = x + (plane * p.h.in + r) * p.w.in + b * p.w.stride + p.w.offset(j);
            C* s = sum + (b - first);
            const int64_t count = e - b;
            WithStep(p.w.stride, [=](auto step) TALLY_ROW_LAMBDA {
              for (int64_t k = 0; k < count; ++k) s[k] += Load(in[k * step]);
            });
          }
        }
        T* to = y + (plane * p.h.out + row) * p.w.out + first;
        for (int64_t k = 0; k < width; ++k) {
          const int64_t count = high * WindowCount(p.w, first + k, p.count_include_pad);
          to[k] = Store<T>(sum[k] / static_cast<C>(count));
        }
      }
    }
  }
}

// dx of each element: its windows' shares, in order of outputs.
template <typename T>
void AvgGradPlanes(const PoolPlanes& p, int64_t begin, int64_t end, const T* dy, T* dx) {
  using C = ComputeType<T>;
  for (int64_t plane = begin; plane < end; ++plane) {
    const T* from = dy + plane * p.h.out * p.w.out;
    for (int64_t r = 0; r < p.h.in; ++r) {
      const WindowRange rows = WindowsOver(p.h, r);
      T* to = dx + (plane * p.h.in + r) * p.w.in;
      for (int64_t c = 0; c < p.w.in; ++c) {
        const WindowRange cols = WindowsOver(p.w, c);
        C sum = 0;
        for (int64_t o = rows.begin; o < rows.end; ++o) {
          const int64_t high = WindowCount(p.h, o, p.count_include_pad);
          for (int64_t q = cols.begin; q < cols.end; ++q) {
            const int64_t count = high * WindowCount(p.w, q, p.count_include_pad);
            sum += Load(from[o * p.w.out + q]) / static_cast<C>(count);
          }
        }
        to[c] = Store<T>(sum);
      }
    }
  }
}

void MaxTasks(const PoolPlanes& p, int64_t begin, int64_t end, const void* x, void* y,
              int64_t* index) {
  VisitFloat(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    MaxPlanes(p, begin, end, static_cast<const T*>(x), static_cast<T*>(y), index);
  });
}
void AvgTasks(const PoolPlanes& p, int64_t begin, int64_t end, const void* x, void* y) {
  VisitFloat(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    AvgPlanes(p, begin, end, static_cast<const T*>(x), static_cast<T*>(y));
  });
}
void AvgGradTasks(const PoolPlanes& p, int64_t begin, int64_t end, const void* dy, void* dx) {
  VisitFloat(p.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    AvgGradPlanes(p, begin, end, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(MaxTasks);
HWY_EXPORT(AvgTasks);
HWY_EXPORT(AvgGradTasks);

namespace {
int64_t WorkOf(const PoolPlanes& p) { return p.h.out * p.w.out * p.h.kernel * p.w.kernel; }
}  // namespace

void RunMaxPool(const PoolPlanes& p, const void* x, void* y, int64_t* index) {
  ForRows(p.planes, WorkOf(p), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(MaxTasks)(p, begin, end, x, y, index);
  });
}
void RunAvgPool(const PoolPlanes& p, const void* x, void* y) {
  ForRows(p.planes, WorkOf(p), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AvgTasks)(p, begin, end, x, y);
  });
}
void RunAvgPoolGrad(const PoolPlanes& p, const void* dy, void* dx) {
  ForRows(p.planes, WorkOf(p), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(AvgGradTasks)(p, begin, end, dy, dx);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
