// What the kernels of grouped products share: where the groups' tiles lie, and what goes into them.
#ifndef TALLY_OPS_GROUPED_MATMUL_CUH_
#define TALLY_OPS_GROUPED_MATMUL_CUH_

#include <bit>

#include "tally/ops/grouped_matmul_gpu.h"
#include "tally/ops/tile.cuh"

namespace tally::gpu {

using internal::GpuGroups;

// By products on tensor cores (bf16 and f16); offsets were checked, there is something to write.
GpuError LaunchGroupedProductTensor(const GpuCall& call, const GpuGroups& g);
GpuError LaunchGroupedOuterTensor(const GpuCall& call, const GpuGroups& g);

// One operand: element (i, k) at data[i step + k deep], for i in [0, count); one of the strides
// is 1.
template <typename T>
struct Factor {
  const T* data;
  int64_t count, step, deep;
};

// Steps of one operand of a tile, read along the axis of unit stride: by vectors where all that lie
// side by side are aligned, element by element where they are not and at the ends.
template <typename Tile, bool kLeft>
class FactorLoader {
 public:
  using T = typename Tile::Element;
  using Item = typename Tile::Item;
  static_assert(std::is_same_v<T, Item>);

  // From element `first` on.
  __device__ FactorLoader(const Factor<T>& f, int64_t first, int64_t depth)
      : along_depth_(f.step != 1), deep_(f.deep), depth_(depth) {
    const T* const data = f.data + first * f.step;
    vectors_ = CanVectorize(data, along_depth_ ? f.step : f.deep);
    count_ = static_cast<int>(f.count - first < kExtent ? f.count - first : kExtent);
    jump_ = along_depth_ ? kRowsByDepth * f.step : kRowsBySide * f.deep;
    from_ = data + I() * f.step + K() * f.deep;
  }

  __device__ void Fetch(int64_t first) {
    const T* from = from_ + first * deep_;
    const int deep = static_cast<int>(depth_ - first < kDepth ? depth_ - first : kDepth);
#pragma unroll
    for (int part = 0; part < kParts; ++part, from += jump_) {
      const int i = I() + (along_depth_ ? part * kRowsByDepth : 0);
      const int k = K() + (along_depth_ ? 0 : part * kRowsBySide);
      const int there = i < count_ && k < deep ? (along_depth_ ? deep - k : count_ - i) : 0;
      if (vectors_ && there >= kN) {
        held_[part] = LoadVector(reinterpret_cast<const uint32_t*>(from));
      } else {
        Vector<T> some;
#pragma unroll
        for (int n = 0; n < kN; ++n) some.v[n] = n < there ? from[n] : T(0.0f);
        held_[part] = std::bit_cast<Vector<uint32_t>>(some);
      }
    }
  }

  __device__ void Put(Item* to) const {
    to += I() * kStep + K() * kDeep;
    if (along_depth_) {
      PutParts<kRowsByDepth * kStep, kDeep>(to);
    } else {
      PutParts<kRowsBySide * kDeep, kStep>(to);
    }
  }

 private:
  static constexpr int kExtent = kLeft ? Tile::kRows : Tile::kColumns, kDepth = Tile::kDepth;
  static constexpr int kStep = kLeft ? Tile::kLeftRow : Tile::kRightColumn;
  static constexpr int kDeep = kLeft ? Tile::kLeftDepth : Tile::kRightDepth;
  static constexpr int kN = kVector<T>;
  static constexpr int kParts = kExtent * kDepth / kN / Tile::kThreads;
  static_assert(kParts * kN * Tile::kThreads == kExtent * kDepth);
  // All threads read so many rows of vectors at a time: along the depth, or along the side.
  static constexpr int kRowsByDepth = Tile::kThreads / (kDepth / kN);
  static constexpr int kRowsBySide = Tile::kThreads / (kExtent / kN);

  // Where this thread's first vector begins.
  __device__ int I() const {
    const int t = static_cast<int>(threadIdx.x);
    return along_depth_ ? t / (kDepth / kN) : t % (kExtent / kN) * kN;
  }
  __device__ int K() const {
    const int t = static_cast<int>(threadIdx.x);
    return along_depth_ ? t % (kDepth / kN) * kN : t / (kExtent / kN);
  }

  template <int kJump, int kNext>
  __device__ void PutParts(Item* to) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if constexpr (kNext == 1) {
        StoreVector(reinterpret_cast<uint32_t*>(to + part * kJump), held_[part]);
      } else {
        const auto all = std::bit_cast<Vector<T>>(held_[part]);
#pragma unroll
        for (int n = 0; n < kN; ++n) to[part * kJump + n * kNext] = all.v[n];
      }
    }
  }

  bool along_depth_, vectors_;
  int count_;
  int64_t deep_, depth_;
  int64_t jump_;  // between vectors of this thread
  const T* from_;
  Vector<uint32_t> held_[kParts];  // not T: elements of 16 bits would take a register each
};

template <typename Tile>
struct FactorLoaders {
  FactorLoader<Tile, true> left;
  FactorLoader<Tile, false> right;
  __device__ void Fetch(int64_t first) {
    left.Fetch(first);
    right.Fetch(first);
  }
  __device__ void Put(typename Tile::Item* l, typename Tile::Item* r) const {
    left.Put(l);
    right.Put(r);
  }
};

// The tile of y = a · b at (row, column); y has no gaps.
template <typename Tile, typename T = typename Tile::Element>
__device__ inline void TileProduct(const Factor<T>& a, const Factor<T>& b, int64_t depth,
                                   int64_t row, int64_t column, T* y, Tile& tile) {
  constexpr int kN = kVector<T>;
  FactorLoaders<Tile> loaders{{a, row, depth}, {b, column, depth}};
  SumOver(0, depth, loaders, tile);
  const bool vectors = CanVectorize(y, b.count);
  tile.template ForEach<kN>([&](int i, int j, const Compute<T>* sum) {
    if (row + i >= a.count || column + j >= b.count) return;
    Vector<T> values;
#pragma unroll
    for (int n = 0; n < kN; ++n) values.v[n] = Narrow<T>(sum[n]);
    T* const to = y + (row + i) * b.count + column + j;
    if (vectors) {
      StoreVector(to, values);
    } else {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        if (column + j + n < b.count) to[n] = values.v[n];
      }
    }
  });
}

// Where a group begins; inside the rows even where offsets are at fault.
__device__ inline int64_t BeginOf(const GpuGroups& g, int64_t group) {
  const int64_t at = g.offsets[group];
  return at < 0 ? 0 : at < g.rows ? at : g.rows;
}

// Tiles begin at multiples of their rows of all rows, and one that several groups share is met once
// for each. Group e has the places from offsets[e] / kRows + e on: no fewer than tiles that it
// touches.
template <typename Tile>
__host__ __device__ inline int64_t PlacesOf(const GpuGroups& g) {
  return g.rows / Tile::kRows + g.groups;
}

template <typename Tile>
__host__ __device__ inline int64_t ProductTasks(const GpuGroups& g) {
  return PlacesOf<Tile>(g) * ((g.q + Tile::kColumns - 1) / Tile::kColumns);
}

template <typename Tile>
__device__ inline void ProductByTiles(const GpuGroups& g) {
  using T = typename Tile::Element;
  Tile tile(Shared<void>());
  const int64_t across = (g.q + Tile::kColumns - 1) / Tile::kColumns;
  for (int64_t task = blockIdx.x; task < ProductTasks<Tile>(g); task += gridDim.x) {
    const int64_t place = task / across;
    int64_t low = 0, high = g.groups - 1;  // the last group whose places begin here or before
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (BeginOf(g, middle) / Tile::kRows + middle <= place) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t begin = BeginOf(g, low), end = BeginOf(g, low + 1);
    // begin / kRows and the tiles of the group before
    const int64_t first_of_tile = (place - low) * Tile::kRows,
                  end_of_tile = first_of_tile + Tile::kRows;
    const int64_t first = first_of_tile > begin ? first_of_tile : begin;
    const int64_t last = end_of_tile < end ? end_of_tile : end;
    if (first >= last) continue;
    const Factor<T> a{static_cast<const T*>(g.a) + first * g.a_row, last - first, g.a_row,
                      g.a_column};
    const Factor<T> b{static_cast<const T*>(g.b) + low * g.b_group, g.q, g.b_column, g.b_row};
    TileProduct(a, b, g.p, 0, task % across * Tile::kColumns, static_cast<T*>(g.y) + first * g.q,
                tile);
  }
}

template <typename Tile>
__host__ __device__ inline int64_t OuterTasks(const GpuGroups& g) {
  return g.groups * ((g.p + Tile::kRows - 1) / Tile::kRows) *
         ((g.q + Tile::kColumns - 1) / Tile::kColumns);
}

template <typename Tile>
__device__ inline void OuterByTiles(const GpuGroups& g) {
  using T = typename Tile::Element;
  Tile tile(Shared<void>());
  const int64_t across = (g.q + Tile::kColumns - 1) / Tile::kColumns;
  const int64_t down = (g.p + Tile::kRows - 1) / Tile::kRows;
  for (int64_t task = blockIdx.x; task < OuterTasks<Tile>(g); task += gridDim.x) {
    const int64_t group = task / across / down;
    const int64_t begin = BeginOf(g, group), end = BeginOf(g, group + 1);
    const Factor<T> a{static_cast<const T*>(g.a) + begin * g.a_row, g.p, g.a_column, g.a_row};
    const Factor<T> b{static_cast<const T*>(g.b) + begin * g.b_row, g.q, g.b_column, g.b_row};
    TileProduct(a, b, end - begin, task / across % down * Tile::kRows,
                task % across * Tile::kColumns, static_cast<T*>(g.y) + group * g.p * g.q, tile);
  }
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_GROUPED_MATMUL_CUH_
