// Products on tensor cores: fragments of bf16 and f16, and a block's tile made of them (tile.cuh).
#ifndef TALLY_OPS_TILE_TENSOR_CUH_
#define TALLY_OPS_TILE_TENSOR_CUH_

#include <mma.h>

#include <cstring>

#include "tally/ops/tile.cuh"

namespace tally::gpu::tensor {

namespace wmma = nvcuda::wmma;

inline constexpr int kSide = 16;  // of a fragment
inline constexpr int kPad = 8;    // elements after a row: neighbouring rows begin on other banks

template <typename T>
using Native = std::conditional_t<std::is_same_v<T, BF16>, __nv_bfloat16, __half>;
template <typename Use, typename E, typename Order>
using Operand = wmma::fragment<Use, kSide, kSide, kSide, E, Order>;
using Sum = wmma::fragment<wmma::accumulator, kSide, kSide, kSide, float>;

// ---- loads of bf16 as if it were f16
//
// nvcc knows that f16 is loaded from shared memory, and does so by one instruction for a fragment;
// bf16 it loads through generic addresses, word by word, and transposes in registers. Where lanes
// hold elements of both types alike, bf16 is therefore loaded as f16: only bits move. CUDA leaves
// open where that is (it is on sm_80 and sm_90), so kernels ask, as they do for accumulators.

// How a kernel loads its operands.
enum class LoadAs { kItself, kF16 };

template <LoadAs kAs, typename Use, typename E, typename Order, typename T>
__device__ inline void LoadOperand(Operand<Use, E, Order>& f, const T* from, int pitch) {
  static_assert(std::is_same_v<E, Native<T>>);
  const auto ldm = static_cast<unsigned>(pitch);
  if constexpr (kAs == LoadAs::kF16 && !std::is_same_v<E, __half>) {
    Operand<Use, __half, Order> bits;
    static_assert(sizeof(bits.x) >= sizeof(f.x));
    wmma::load_matrix_sync(bits, reinterpret_cast<const __half*>(from), ldm);
    memcpy(&f.x, &bits.x, sizeof(f.x));
  } else {
    wmma::load_matrix_sync(f, reinterpret_cast<const E*>(from), ldm);
  }
}

template <typename Use, typename Order>
__device__ inline bool HeldAlike(const BF16* matrix) {
  Operand<Use, __nv_bfloat16, Order> itself, as_f16;
  LoadOperand<LoadAs::kItself>(itself, matrix, kSide);
  LoadOperand<LoadAs::kF16>(as_f16, matrix, kSide);
  uint16_t x[itself.num_elements], y[itself.num_elements];
  memcpy(x, &itself.x, sizeof(x));
  memcpy(y, &as_f16.x, sizeof(y));
  bool same = true;
#pragma unroll
  for (int i = 0; i < itself.num_elements; ++i) same = same && x[i] == y[i];
  return same;
}

// Whether operands can be loaded so, in every order. By a whole warp, with memory of its own for
// kSide² elements.
__device__ inline bool LoadsAsF16(F16*) { return true; }
__device__ inline bool LoadsAsF16(BF16* matrix) {
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kSide * kSide; i += kWarp)
    matrix[i].bits = static_cast<uint16_t>(i);
  __syncwarp();
  const bool a = HeldAlike<wmma::matrix_a, wmma::row_major>(matrix);
  const bool a_by_column = HeldAlike<wmma::matrix_a, wmma::col_major>(matrix);
  const bool b = HeldAlike<wmma::matrix_b, wmma::row_major>(matrix);
  const bool b_by_column = HeldAlike<wmma::matrix_b, wmma::col_major>(matrix);
  const int alike = __all_sync(0xffffffffu, a && a_by_column && b && b_by_column);
  __syncwarp();
  return alike != 0;
}

// fn(a LoadAs as a constant)
template <typename T, typename Fn>
__device__ inline void VisitLoad(bool as_f16, const Fn& fn) {
  if (as_f16) {
    fn(std::integral_constant<LoadAs, LoadAs::kF16>{});
  } else if constexpr (std::is_same_v<T, BF16>) {
    fn(std::integral_constant<LoadAs, LoadAs::kItself>{});
  }
}

// ---- a tile

// How an operand lies in shared memory: rows of its side of the result, neighbours in depth, or
// rows of depth.
enum class Lies { kByDepth, kBySide };

// kRowWarps x kColumnWarps warps, each with kDown x kAcross fragments of the result.
template <int kRowWarps_, int kColumnWarps_, int kDown_, int kAcross_, Lies kLeft_, Lies kRight_>
struct TileShape {
  static constexpr int kRowWarps = kRowWarps_, kColumnWarps = kColumnWarps_;
  static constexpr int kDown = kDown_, kAcross = kAcross_;
  static constexpr Lies kLeft = kLeft_, kRight = kRight_;
};

template <typename T, typename Shape>
class TensorTile {
 public:
  using Element = T;
  using Item = T;
  static constexpr int kWarpRows = Shape::kDown * kSide, kWarpColumns = Shape::kAcross * kSide;
  static constexpr int kRows = Shape::kRowWarps * kWarpRows;
  static constexpr int kColumns = Shape::kColumnWarps * kWarpColumns;
  static constexpr int kDepth = 32;
  static constexpr int kWarps = Shape::kRowWarps * Shape::kColumnWarps, kThreads = kWarps * kWarp;

  static constexpr bool kLeftByDepth = Shape::kLeft == Lies::kByDepth;
  static constexpr bool kRightByDepth = Shape::kRight == Lies::kByDepth;
  static constexpr int kLeftPitch = (kLeftByDepth ? kDepth : kRows) + kPad;
  static constexpr int kRightPitch = (kRightByDepth ? kDepth : kColumns) + kPad;
  static constexpr int kLeftRow = kLeftByDepth ? kLeftPitch : 1;
  static constexpr int kLeftDepth = kLeftByDepth ? 1 : kLeftPitch;
  static constexpr int kRightDepth = kRightByDepth ? 1 : kRightPitch;
  static constexpr int kRightColumn = kRightByDepth ? kRightPitch : 1;

 private:
  static constexpr int kLeftItems = (kLeftByDepth ? kRows : kDepth) * kLeftPitch;
  static constexpr int kRightItems = (kRightByDepth ? kColumns : kDepth) * kRightPitch;
  static constexpr size_t kStepBytes = sizeof(T) * (kLeftItems + kRightItems);
  static constexpr int kResultPitch = kWarpColumns + 4;
  static constexpr int kResultItems = kSide * kResultPitch;  // of a warp, in place of the steps
  static constexpr size_t kResultBytes = sizeof(float) * kWarps * kResultItems;

 public:
  static constexpr size_t kBytes = kStepBytes > kResultBytes ? kStepBytes : kResultBytes;

  // By the whole block, which must meet before the memory is used otherwise.
  __device__ explicit TensorTile(void* memory)
      : memory_(memory), as_f16_(LoadsAsF16(left() + warp() * kSide * kSide)) {}
  static_assert(kWarps * kSide * kSide * sizeof(T) <= kBytes);

  __device__ Item* left() const { return static_cast<T*>(memory_); }
  __device__ Item* right() const { return left() + kLeftItems; }

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < Shape::kDown * Shape::kAcross; ++i)
      wmma::fill_fragment(sum_[i / Shape::kAcross][i % Shape::kAcross], 0.0f);
  }

  __device__ void AddStep() {
    VisitLoad<T>(as_f16_, [this](auto as) { AddStepBy<as>(); });
  }

 private:
  template <LoadAs kAs>
  __device__ void AddStepBy() {
    using LeftOrder = std::conditional_t<kLeftByDepth, wmma::row_major, wmma::col_major>;
    using RightOrder = std::conditional_t<kRightByDepth, wmma::col_major, wmma::row_major>;
    const T* const left = this->left() + row() * kLeftRow;
    const T* const right = this->right() + column() * kRightColumn;
#pragma unroll
    for (int k = 0; k < kDepth; k += kSide) {
      Operand<wmma::matrix_a, Native<T>, LeftOrder> a[Shape::kDown];
      Operand<wmma::matrix_b, Native<T>, RightOrder> b[Shape::kAcross];
#pragma unroll
      for (int i = 0; i < Shape::kDown; ++i) {
        LoadOperand<kAs>(a[i], left + kSide * i * kLeftRow + k * kLeftDepth, kLeftPitch);
      }
#pragma unroll
      for (int j = 0; j < Shape::kAcross; ++j) {
        LoadOperand<kAs>(b[j], right + k * kRightDepth + kSide * j * kRightColumn, kRightPitch);
      }
#pragma unroll
      for (int i = 0; i < Shape::kDown; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kAcross; ++j) wmma::mma_sync(sum_[i][j], a[i], b[j], sum_[i][j]);
      }
    }
  }

 public:
  // As PlainTile's; neighbouring lanes have neighbouring runs.
  template <int kRun, typename Fn>
  __device__ void ForEach(const Fn& fn) {
    constexpr int kRuns = kWarpColumns / kRun;  // in a row
    static_assert(kWarpColumns % kRun == 0);
    float* const buffer = static_cast<float*>(memory_) + warp() * kResultItems;
#pragma unroll
    for (int i = 0; i < Shape::kDown; ++i) {
      __syncwarp();
#pragma unroll
      for (int j = 0; j < Shape::kAcross; ++j) {
        wmma::store_matrix_sync(buffer + kSide * j, sum_[i][j], kResultPitch, wmma::mem_row_major);
      }
      __syncwarp();
      for (int e = static_cast<int>(threadIdx.x) % kWarp; e < kSide * kRuns; e += kWarp) {
        const int at_row = e / kRuns, at_column = e % kRuns * kRun;
        fn(row() + kSide * i + at_row, column() + at_column,
           buffer + at_row * kResultPitch + at_column);
      }
    }
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ static int row() { return warp() / Shape::kColumnWarps * kWarpRows; }
  __device__ static int column() { return warp() % Shape::kColumnWarps * kWarpColumns; }

  void* memory_;
  bool as_f16_;
  Sum sum_[Shape::kDown][Shape::kAcross];
};

}  // namespace tally::gpu::tensor

#endif  // TALLY_OPS_TILE_TENSOR_CUH_
