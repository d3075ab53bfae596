// A block's tile of a product of matrices: sums over a depth that goes through shared memory, some
// of it at a time. What a tile is made of comes from a loader, what becomes of it is the caller's.
//
// Two tiles, alike to use: PlainTile here, TensorTile in tile_tensor.cuh. Theirs are
//   kRows x kColumns   of the result, kDepth of a step, kThreads of the block
//   Item, left, right  the operands' steps in shared memory: left element (m, k) at
//                      left[m kLeftRow + k kLeftDepth], right (k, n) at
//                      right[k kRightDepth + n kRightColumn]
//   kBytes             of memory that they are given, 32-byte aligned
//
// A loader has Fetch(first), which reads the step from depth `first` on as far as it can be held
// without shared memory that the tile owns, and Put(left, right), which writes it there, zeros
// where nothing is.
#ifndef TALLY_OPS_TILE_CUH_
#define TALLY_OPS_TILE_CUH_

#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

// By plain arithmetic: 16 by 16 threads, each with 4 x 4 elements.
template <typename T>
class PlainTile {
 public:
  using Element = T;
  using Item = Compute<T>;
  static constexpr int kRows = 64, kColumns = 64, kDepth = 16, kThreads = kBlock;
  // Rows of a step begin on 16 bytes and in different banks.
  static constexpr int kLeftRow = 1, kLeftDepth = kRows + kVector<Item>;
  static constexpr int kRightDepth = kColumns + kVector<Item>, kRightColumn = 1;
  static constexpr size_t kBytes = sizeof(Item) * kDepth * (kLeftDepth + kRightDepth);

  __device__ explicit PlainTile(void* memory) : left_(static_cast<Item*>(memory)) {}

  __device__ Item* left() const { return left_; }
  __device__ Item* right() const { return left_ + kDepth * kLeftDepth; }

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kOwn * kOwn; ++i) sum_[i / kOwn][i % kOwn] = 0;
  }

  __device__ void AddStep() {
    constexpr int kN = kVector<Item> < kOwn ? kVector<Item> : kOwn;
    const Item* const left = left_ + row();
    const Item* const right = this->right() + column();
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      Item a[kOwn], b[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; i += kN) {
        const auto x = LoadVector<Item, kN>(left + k * kLeftDepth + i);
        const auto y = LoadVector<Item, kN>(right + k * kRightDepth + i);
#pragma unroll
        for (int n = 0; n < kN; ++n) a[i + n] = x.v[n], b[i + n] = y.v[n];
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sum_[i][j] += a[i] * b[j];
      }
    }
  }

  // fn(row, column, sums): kRun sums from there on in a row.
  template <int kRun, typename Fn>
  __device__ void ForEach(const Fn& fn) {
    static_assert(kOwn % kRun == 0);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kOwn; j += kRun) fn(row() + i, column() + j, sum_[i] + j);
    }
  }

 private:
  static constexpr int kOwn = 4, kAcross = kColumns / kOwn;
  static_assert(kRows / kOwn * kAcross == kThreads);
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kAcross * kOwn; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kAcross * kOwn; }

  Item* left_;
  Item sum_[kOwn][kOwn];
};

// The sums of the tile over depths [begin, end), step by step in ascending order. The next step is
// fetched while one is added up. By the whole block; what others did with the loader's and the
// tile's memory before is over after Fetch.
template <typename Tile, typename Loader>
__device__ inline void SumOver(int64_t begin, int64_t end, Loader& loader, Tile& tile) {
  tile.Clear();
  if (begin < end) loader.Fetch(begin);
  __syncthreads();
  for (int64_t first = begin; first < end; first += Tile::kDepth) {
    loader.Put(tile.left(), tile.right());
    __syncthreads();
    if (first + Tile::kDepth < end) loader.Fetch(first + Tile::kDepth);
    tile.AddStep();
    __syncthreads();
  }
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_TILE_CUH_
