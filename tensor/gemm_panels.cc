// Products whose operands are not of the compute type: tiles are copied into buffers of fixed size
// as f32 (f64), multiplied there and rounded once into c. Tiles depend on the shape alone; threads
// share them out, each with its own buffers.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "tally/tensor/check.h"
#include "tally/tensor/dtype_dispatch.h"
#include "tally/tensor/gemm_libraries.h"

// Conversions are bound by arithmetic until they are vectorised widely.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__)
#define TALLY_CONVERT_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TALLY_CONVERT_CLONES
#endif

namespace tally::internal {
namespace {

// One tile's buffers are 512 + 256 + 512 KiB in f32: within a second-level cache of 1.25 MiB.
constexpr int64_t kTileRows = 512, kTileCols = 256, kTileK = 256;
constexpr int64_t kMinTileCols = 32;

TALLY_CONVERT_CLONES void WidenRun(const BF16* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}
TALLY_CONVERT_CLONES void WidenRun(const F16* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}
// A byte has 256 values: look them up.
template <typename F8>
void WidenRun(const F8* src, float* dst, int64_t n) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values;
    for (int bits = 0; bits < 256; ++bits) {
      F8 value;
      value.bits = static_cast<uint8_t>(bits);
      values[bits] = static_cast<float>(value);
    }
    return values;
  }();
  for (int64_t i = 0; i < n; ++i) dst[i] = table[src[i].bits];
}
void WidenRun(const float* src, float* dst, int64_t n) { std::memcpy(dst, src, n * sizeof(float)); }
void WidenRun(const double* src, double* dst, int64_t n) {
  std::memcpy(dst, src, n * sizeof(double));
}

TALLY_CONVERT_CLONES void RoundRun(const float* src, BF16* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = BF16(src[i]);
}
TALLY_CONVERT_CLONES void RoundRun(const float* src, F16* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = F16(src[i]);
}
template <typename F8>
void RoundRun(const float* src, F8* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = F8(src[i]);
}
void RoundRun(const float* src, float* dst, int64_t n) { std::memcpy(dst, src, n * sizeof(float)); }
void RoundRun(const double* src, double* dst, int64_t n) {
  std::memcpy(dst, src, n * sizeof(double));
}

// Calls fn with a tag of each float type that computes in C.
template <typename C, typename Fn>
void VisitOperand(DType dtype, Fn&& fn) {
  VisitDType(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (kIsFloatType<T> && std::is_same_v<ComputeType<T>, C>) {
      fn(tag);
    } else {
      TALLY_CHECK(false) << "gemm: dtype " << Name(dtype) << " does not fit the compute type";
    }
  });
}

// Where a tile lies: extents and first row, column and k.
struct Tile {
  int64_t row, rows, col, cols;
};

// Copies the block of a column-major operand that starts at (row, col) of op(operand) and has
// rows×cols elements there; a transposed operand stays transposed. Returns the panel as operand.
template <typename C>
GemmCall::Operand Widen(const GemmCall::Operand& o, int64_t row, int64_t rows, int64_t col,
                        int64_t cols, C* panel) {
  if (o.transposed) {
    std::swap(row, col);
    std::swap(rows, cols);
  }
  VisitOperand<C>(o.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* src = static_cast<const T*>(o.data) + col * o.ld + row;
    for (int64_t j = 0; j < cols; ++j) WidenRun(src + j * o.ld, panel + j * rows, rows);
  });
  constexpr DType kType = std::is_same_v<C, double> ? DType::kF64 : DType::kF32;
  return {.data = panel, .dtype = kType, .ld = rows, .transposed = o.transposed};
}

// c = sum + beta · c + bias over one tile, rounded once. `sum` holds alpha · op(a) · op(b).
template <typename C>
void Finish(const GemmCall& call, const Tile& tile, C* sum) {
  VisitOperand<C>(call.c_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const C beta = static_cast<C>(call.beta);
    std::array<C, kTileRows> bias{}, old;
    if (call.bias != nullptr) {
      WidenRun(static_cast<const T*>(call.bias) + tile.row, bias.data(), tile.rows);
    }
    for (int64_t j = 0; j < tile.cols; ++j) {
      C* const s = sum + j * tile.rows;
      T* const c = static_cast<T*>(call.c) + (tile.col + j) * call.ldc + tile.row;
      if (beta != 0) {
        WidenRun(static_cast<const T*>(c), old.data(), tile.rows);
        for (int64_t i = 0; i < tile.rows; ++i) s[i] += beta * old[i];
      }
      if (call.bias != nullptr) {
        for (int64_t i = 0; i < tile.rows; ++i) s[i] += bias[i];
      }
      RoundRun(static_cast<const C*>(s), c, tile.rows);
    }
  });
}

template <typename C>
struct Buffers {
  C* a;
  C* b;
  C* sum;
};

template <typename C>
void RunTile(const GemmCall& call, const Tile& tile, const Buffers<C>& buffers,
             void (*multiply)(const GemmCall&) noexcept) {
  std::fill_n(buffers.sum, tile.rows * tile.cols, C{0});
  for (int64_t k = 0; k < call.k; k += kTileK) {
    const int64_t depth = std::min(kTileK, call.k - k);
    GemmCall panel;
    panel.rows = tile.rows;
    panel.cols = tile.cols;
    panel.k = depth;
    panel.a = Widen(call.a, tile.row, tile.rows, k, depth, buffers.a);
    panel.b = Widen(call.b, k, depth, tile.col, tile.cols, buffers.b);
    panel.c = buffers.sum;
    panel.c_dtype = panel.compute = call.compute;
    panel.ldc = tile.rows;
    panel.alpha = call.alpha;
    panel.beta = 1;
    multiply(panel);
  }
  Finish(call, tile, buffers.sum);
}

// Memory of this thread that stays for the next product; grown before a parallel region begins.
char* Workspace(size_t bytes) {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  static thread_local std::unique_ptr<char, Free> block;
  static thread_local size_t size = 0;
  if (bytes > size) {
    block.reset();
    block.reset(static_cast<char*>(std::aligned_alloc(4096, bytes)));
    TALLY_CHECK(block != nullptr) << "gemm: no memory for panels of " << bytes << " bytes";
    size = bytes;
  }
  return block.get();
}

template <typename C>
void RunPanels(const GemmCall& call, void (*multiply)(const GemmCall&) noexcept) {
  const int64_t batch = call.batch[0] * call.batch[1];
  // A lone product of few columns is cut finer, so that every thread finds a tile.
  const int64_t wanted = batch >= 8 ? call.cols : (call.cols + 127) / 128 * 16;
  const int64_t tile_rows = std::min(kTileRows, call.rows);
  const int64_t tile_cols = std::min(std::clamp(wanted, kMinTileCols, kTileCols), call.cols);
  const int64_t tile_k = std::min(kTileK, call.k);
  const int64_t row_tiles = (call.rows + tile_rows - 1) / tile_rows;
  const int64_t col_tiles = (call.cols + tile_cols - 1) / tile_cols;
  const int64_t tiles = batch * row_tiles * col_tiles;

  const int64_t sizes[] = {tile_rows * tile_k, tile_k * tile_cols, tile_rows * tile_cols};
  const auto padded = [](int64_t elements) {
    return (elements * static_cast<int64_t>(sizeof(C)) + 4095) / 4096 * 4096;
  };
  const int64_t per_thread = padded(sizes[0]) + padded(sizes[1]) + padded(sizes[2]) + 4096;
  const bool worth = call.rows * call.cols * batch > 65536 / std::max<int64_t>(call.k, 1);
  const int threads = worth ? static_cast<int>(std::min<int64_t>(UsableThreads(), tiles)) : 1;
  char* const workspace = Workspace(per_thread * threads);

#pragma omp parallel num_threads(threads)
  {
    char* const own = workspace + per_thread * omp_get_thread_num();
    const Buffers<C> buffers{reinterpret_cast<C*>(own),
                             reinterpret_cast<C*>(own + padded(sizes[0])),
                             reinterpret_cast<C*>(own + padded(sizes[0]) + padded(sizes[1]))};
#pragma omp for schedule(static)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t matrix = t / (row_tiles * col_tiles);
      const int64_t row = t % row_tiles * tile_rows;
      const int64_t col = t / row_tiles % col_tiles * tile_cols;
      const GemmCall one = MatrixAt(call, matrix / call.batch[1], matrix % call.batch[1]);
      RunTile(
          one,
          {row, std::min(tile_rows, call.rows - row), col, std::min(tile_cols, call.cols - col)},
          buffers, multiply);
    }
  }
}

}  // namespace

void PanelGemm(const GemmCall& call, void (*multiply)(const GemmCall&) noexcept) noexcept {
  if (call.compute == DType::kF64) return RunPanels<double>(call, multiply);
  TALLY_CHECK(call.compute == DType::kF32) << "no such compute type";
  RunPanels<float>(call, multiply);
}

}  // namespace tally::internal
