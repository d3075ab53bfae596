#include "tally/ops/rope_rows.h"

#include <algorithm>
#include <cmath>

#include "tally/ops/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tally/ops/rope_rows.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "tally/ops/rows.inc"

#ifndef TALLY_OPS_ROPE_ROWS_ONCE_
#define TALLY_OPS_ROPE_ROWS_ONCE_
namespace tally {

// Sines of kRopeBlock positions and kRopeTile pairs are made at once and used for kRopeOuter
// indexes of the outer axes: they stay in the nearest cache.
inline constexpr int64_t kRopeBlock = 8;
inline constexpr int64_t kRopeTile = 128;
inline constexpr int64_t kRopeOuter = 8;

inline int64_t RopeBlocks(const RopeRows& a) { return (a.positions + kRopeBlock - 1) / kRopeBlock; }
inline int64_t RopeGroups(const RopeRows& a) {
  return (a.outer.count + kRopeOuter - 1) / kRopeOuter;
}

}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

template <class D2>
HWY_INLINE void StoreAs(hn::Vec<D2> v, D2 d2, double* p) {
  hn::StoreU(v, d2, p);
}
template <class D2>
HWY_INLINE void StoreAs(hn::Vec<D2> v, D2 /*d2*/, float* p) {
  const hn::Rebind<float, D2> d;
  hn::StoreU(hn::DemoteTo(d, v), d, p);
}

// cos and sin of the pairs [begin, begin + count) at position `p`, counted from the table's first.
template <typename C>
void SinesOf(const RopeTable& table, int64_t p, int64_t begin, int64_t count, bool inverse, C* cos,
             C* sin) {
  const hn::ScalableTag<double> d2;
  const double* low = table.Low(p % kRopeLow) + begin;
  const double* high = table.High(p / kRopeLow) + begin;
  const double sign = inverse ? -1 : 1;
  const auto s = hn::Set(d2, sign);
  const int64_t lanes = hn::Lanes(d2), pairs = table.pairs;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto lc = hn::LoadU(d2, low + i), ls = hn::LoadU(d2, low + pairs + i);
    const auto hc = hn::LoadU(d2, high + i), hs = hn::LoadU(d2, high + pairs + i);
    StoreAs(hn::Sub(hn::Mul(lc, hc), hn::Mul(ls, hs)), d2, cos + i);
    StoreAs(hn::Mul(s, hn::Add(hn::Mul(ls, hc), hn::Mul(lc, hs))), d2, sin + i);
  }
  for (; i < count; ++i) {
    const double lc = low[i], ls = low[pairs + i], hc = high[i], hs = high[pairs + i];
    cos[i] = static_cast<C>(lc * hc - ls * hs);
    sin[i] = static_cast<C>(sign * (ls * hc + lc * hs));
  }
}

// Sines of a block of positions as the rotation reads them, a row of 2 kRopeTile for each.
template <typename T>
struct RopeSines {
  using C = ComputeType<T>;
  static constexpr int64_t kRow = 2 * kRopeTile;
  HWY_ALIGN C cos[kRopeBlock * kRow];
  HWY_ALIGN C sin[kRopeBlock * kRow];

  // Interleaved: both features of a pair have its cosine, the first the negative sine.
  void Fill(const RopeRows& a, const RopeTable& table, int64_t row, int64_t p, int64_t begin,
            int64_t count) {
    C* c = cos + row * kRow;
    C* s = sin + row * kRow;
    SinesOf(table, p, begin, count, a.inverse, c, s);
    if (!a.interleaved) return;
    for (int64_t i = count; i-- > 0;) {
      c[2 * i] = c[2 * i + 1] = c[i];
      const C own = s[i];
      s[2 * i] = -own;
      s[2 * i + 1] = own;
    }
  }
};

// `count` pairs from feature x and x + half.
template <typename T, typename C>
HWY_INLINE void TurnHalves(const T* x, int64_t half, size_t count, const C* cos, const C* sin,
                           T* y) {
  const RowTag<T> d;
  ForVectors(d, count, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    const auto a = LoadSome(d, x + i, k, 0), b = LoadSome(d, x + half + i, k, 0);
    const auto c = hn::Load(d, cos + i), s = hn::Load(d, sin + i);
    StoreSome(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, y + i, k);
    StoreSome(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, y + half + i, k);
  });
}
// `count` pairs of neighbours.
template <typename T, typename C>
HWY_INLINE void TurnNeighbours(const T* x, size_t count, const C* cos, const C* sin, T* y) {
  const RowTag<T> d;
  ForVectors(d, 2 * count, [&](size_t i, size_t k) TALLY_ROW_LAMBDA {
    const auto v = LoadSome(d, x + i, k, 0);
#if HWY_TARGET == HWY_SCALAR
    const auto other = LoadSome(d, x + (i ^ 1), k, 0);
#else
    const auto other = hn::Reverse2(d, v);
#endif
    const auto turned = hn::Mul(other, hn::Load(d, sin + i));
    StoreSome(hn::Add(hn::Mul(v, hn::Load(d, cos + i)), turned), d, y + i, k);
  });
}

// Places of the positions of one block in their documents.
inline void PlacesOf(const RopeRows& a, int64_t first, int64_t count, int64_t* places) {
  size_t document = 0;
  int64_t start = 0;
  for (int64_t t = first; t < first + count; ++t) {
    while (document < a.documents.size() && t >= start + a.documents[document]) {
      start += a.documents[document++];
    }
    places[t - first] = t - start;
  }
}

template <typename T>
void RopeItem(const RopeRows& a, const RopeTable& table, int64_t item) {
  const int64_t first = item / RopeGroups(a) * kRopeBlock;
  const int64_t positions = std::min(kRopeBlock, a.positions - first);
  const int64_t outer = item % RopeGroups(a) * kRopeOuter;
  const int64_t outer_end = std::min(a.outer.count, outer + kRopeOuter);
  const T* from = static_cast<const T*>(a.x);
  T* to = static_cast<T*>(a.y);
  int64_t places[kRopeBlock];
  PlacesOf(a, first, positions, places);
  RopeSines<T> sines;
  for (int64_t tile = 0; tile < a.pairs; tile += kRopeTile) {
    const int64_t count = std::min(kRopeTile, a.pairs - tile);
    for (int64_t t = 0; t < positions; ++t) sines.Fill(a, table, t, places[t], tile, count);
    for (int64_t o = outer; o < outer_end; ++o) {
      for (int64_t t = 0; t < positions; ++t) {
        const T* rows = from + a.outer.OffsetOf(o) + (first + t) * a.position_stride;
        T* y = to + (o * a.positions + first + t) * a.inner.count * a.features;
        const auto* cos = sines.cos + t * RopeSines<T>::kRow;
        const auto* sin = sines.sin + t * RopeSines<T>::kRow;
        for (int64_t h = 0; h < a.inner.count; ++h, y += a.features) {
          const T* x = rows + a.inner.OffsetOf(h);
          if (a.interleaved) {
            TurnNeighbours(x + 2 * tile, count, cos, sin, y + 2 * tile);
          } else {
            TurnHalves(x + tile, a.pairs, count, cos, sin, y + tile);
          }
          if (tile == 0) std::copy(x + 2 * a.pairs, x + a.features, y + 2 * a.pairs);
        }
      }
    }
  }
}

void RopeTasks(const RopeRows& a, const RopeTable& table, int64_t begin, int64_t end) {
  VisitFloat(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t item = begin; item < end; ++item) RopeItem<T>(a, table, item);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RopeTasks);

namespace {

// Row r holds the angles f r 2^shift. Rows that are powers of two are made directly, where the
// angle is exact; any other is the product of two before it.
void FillRows(double* rows, int64_t count, int shift, const double* f, int64_t pairs) {
  for (int64_t r = 0; r < count; ++r) {
    int bit = 0;
    while (r >> (bit + 1) != 0) ++bit;
    const int64_t top = int64_t{1} << bit;
    double* cos = rows + r * 2 * pairs;
    double* sin = cos + pairs;
    const double* a = rows + top * 2 * pairs;
    const double* b = rows + (r - top) * 2 * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      if (r == 0) {
        cos[i] = 1, sin[i] = 0;
      } else if (r == top) {
        const double angle = std::ldexp(f[i], bit + shift);
        cos[i] = std::cos(angle), sin[i] = std::sin(angle);
      } else {
        cos[i] = b[i], sin[i] = b[pairs + i];
        Turn(a[i], a[pairs + i], cos[i], sin[i]);
      }
    }
  }
}

}  // namespace

void FillRopeTable(const RopeTable& table, int64_t offset) {
  const int64_t pairs = table.pairs;
  const double* f = table.Frequencies();
  FillRows(table.Low(0), table.low, 0, f, pairs);
  FillRows(table.High(0), table.high, 6, f, pairs);  // kRopeLow = 2^6
  if (offset == 0) return;
  for (int64_t i = 0; i < pairs; ++i) {
    double cos = 1, sin = 0;
    for (int bit = 0; offset >> bit != 0; ++bit) {
      if ((offset >> bit & 1) == 0) continue;
      const double angle = std::ldexp(f[i], bit);
      Turn(std::cos(angle), std::sin(angle), cos, sin);
    }
    for (int64_t r = 0; r < table.low; ++r) {
      Turn(cos, sin, table.Low(r)[i], table.Low(r)[pairs + i]);
    }
  }
}

void RunRopeRows(const RopeRows& a, const RopeTable& table) {
  const int64_t work =
      kRopeBlock * std::min(kRopeOuter, a.outer.count) * a.inner.count * a.features;
  ForRows(RopeBlocks(a) * RopeGroups(a), work, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeTasks)(a, table, begin, end);
  });
}

}  // namespace tally
#endif  // HWY_ONCE
