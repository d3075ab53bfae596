// What the kernels of convolution share: a convolution as the product of a matrix that lies there
// and one that is gathered, element by element, while it is multiplied.
//
//               rows M   columns N      depth K        result [M, N]    left [M, K]   gathered
//   forward     Co/g     N Ho Wo        C/g kh kw      y                w             x
//   input grad  C/g      N H W          Co/g kh kw     dx               w             dy
//   weight grad Co/g     C/g kh kw      N Ho Wo        dw               dy            x
//
// Each column and each place of the depth has an entry that says what it adds to an address and to
// a position in a plane; a gathered element lies at the sum of both, or outside the plane: 0.
#ifndef TALLY_OPS_CONV_CUH_
#define TALLY_OPS_CONV_CUH_

#include "tally/ops/conv_gpu.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

using internal::GpuConv;

enum class ConvOf { kForward, kInputGrad, kWeightGrad };

inline constexpr int kConvTile = 64;  // rows, and columns, of a block's part of the result

// By products on tensor cores (bf16 and f16) and plain ones (f64 and f32).
GpuError LaunchConvTensor(const GpuCall& call, ConvOf of, const GpuConv& f);
GpuError LaunchConvPlain(const GpuCall& call, ConvOf of, const GpuConv& f);

struct ConvExtent {
  int64_t rows, columns, depth;
};
template <ConvOf kOf>
__host__ __device__ inline ConvExtent ExtentOf(const ConvGeometry& g) {
  if constexpr (kOf == ConvOf::kForward) {
    return {g.out_group(), g.batch * g.out_plane(), g.taps()};
  } else if constexpr (kOf == ConvOf::kInputGrad) {
    return {g.in_group(), g.batch * g.in_plane(), g.out_group() * g.kernel()};
  } else {
    return {g.out_group(), g.taps(), g.batch * g.out_plane()};
  }
}

// Positions are 32 bits wide: no plane has an axis of this size (FitsInt). Two of them add up.
inline constexpr int kNowhere = 1 << 29;

inline bool FitsInt(const WindowAxis& a) {
  return a.in + 2 * a.padding + a.extent() < kNowhere && a.out * a.stride < kNowhere;
}

// Of a place of the depth: what it adds to addresses in the left matrix and in the gathered one.
struct ConvDepth {
  int64_t left, gathered;
  int y, x;
};
// Of a column: addresses in the gathered matrix and in the result; result < 0: there is none.
struct ConvColumn {
  int64_t gathered, result;
  int y, x;
};

// First element of a group's left matrix and of its result, and the strides of their rows.
struct ConvRows {
  int64_t left, left_stride, result, result_stride;
};
template <ConvOf kOf>
__device__ inline ConvRows RowsOf(const ConvGeometry& g, int64_t group) {
  const int64_t weights = group * g.out_group() * g.taps();
  if constexpr (kOf == ConvOf::kForward) return {weights, g.taps(), 0, g.out_plane()};
  if constexpr (kOf == ConvOf::kInputGrad) return {weights, g.kernel(), 0, g.in_plane()};
  return {0, g.out_plane(), weights, g.taps()};
}

// An element of a plane of all images: where it lies from the first channel of the group on.
struct ConvPixel {
  int64_t image, y, x;
};
__device__ inline ConvPixel PixelOf(int64_t i, int64_t plane, int64_t width) {
  const int64_t image = i / plane, at = i - image * plane, y = at / width;
  return {image, y, at - y * width};
}
struct ConvTap {
  int64_t channel, y, x;
};
__device__ inline ConvTap TapOf(const ConvGeometry& g, int64_t tap) {
  const int64_t channel = tap / g.kernel(), at = tap - channel * g.kernel(), y = at / g.w.kernel;
  return {channel, y, at - y * g.w.kernel};
}

template <ConvOf kOf>
__device__ inline ConvDepth DepthOf(const ConvGeometry& g, int64_t group, int64_t k, int64_t end) {
  if (k >= end) return {0, 0, kOf == ConvOf::kInputGrad ? kNowhere : -kNowhere, 0};
  if constexpr (kOf == ConvOf::kWeightGrad) {
    const ConvPixel p = PixelOf(k, g.out_plane(), g.w.out);
    const int64_t y = p.y * g.h.stride - g.h.padding, x = p.x * g.w.stride - g.w.padding;
    return {
        (p.image * g.out_channels + group * g.out_group()) * g.out_plane() + p.y * g.w.out + p.x,
        (p.image * g.in_channels + group * g.in_group()) * g.in_plane() + y * g.w.in + x,
        static_cast<int>(y), static_cast<int>(x)};
  } else {
    const ConvTap tap = TapOf(g, k);
    const int64_t y = tap.y * g.h.dilation, x = tap.x * g.w.dilation;
    if constexpr (kOf == ConvOf::kForward) {
      return {k, tap.channel * g.in_plane() + y * g.w.in + x, static_cast<int>(y),
              static_cast<int>(x)};
    } else {
      return {tap.channel * g.taps() + tap.y * g.w.kernel + tap.x, tap.channel * g.out_plane(),
              static_cast<int>(y), static_cast<int>(x)};
    }
  }
}

template <ConvOf kOf>
__device__ inline ConvColumn ColumnOf(const ConvGeometry& g, int64_t group, int64_t n,
                                      int64_t columns) {
  if (n >= columns) return {0, -1, -kNowhere, 0};
  if constexpr (kOf == ConvOf::kForward) {
    const ConvPixel p = PixelOf(n, g.out_plane(), g.w.out);
    const int64_t y = p.y * g.h.stride - g.h.padding, x = p.x * g.w.stride - g.w.padding;
    return {
        (p.image * g.in_channels + group * g.in_group()) * g.in_plane() + y * g.w.in + x,
        (p.image * g.out_channels + group * g.out_group()) * g.out_plane() + p.y * g.w.out + p.x,
        static_cast<int>(y), static_cast<int>(x)};
  } else if constexpr (kOf == ConvOf::kInputGrad) {
    const ConvPixel p = PixelOf(n, g.in_plane(), g.w.in);
    return {(p.image * g.out_channels + group * g.out_group()) * g.out_plane(),
            (p.image * g.in_channels + group * g.in_group()) * g.in_plane() + p.y * g.w.in + p.x,
            static_cast<int>(p.y + g.h.padding), static_cast<int>(p.x + g.w.padding)};
  } else {
    const ConvTap tap = TapOf(g, n);
    const int64_t y = tap.y * g.h.dilation, x = tap.x * g.w.dilation;
    return {tap.channel * g.in_plane() + y * g.w.in + x, n, static_cast<int>(y),
            static_cast<int>(x)};
  }
}

// Whether `at` is a multiple of the stride, which it is divided by then.
__device__ inline bool Divides(int stride, int* at) {
  if (stride == 1) return true;
  const int quotient = *at / stride;
  const bool whole = quotient * stride == *at;
  *at = quotient;
  return whole;
}

template <ConvOf kOf, typename T>
__device__ inline T Gathered(const ConvGeometry& g, const T* from, const ConvDepth& k,
                             const ConvColumn& n) {
  if constexpr (kOf == ConvOf::kInputGrad) {
    int y = n.y - k.y, x = n.x - k.x;
    if (y < 0 || x < 0) return T(0.0f);
    if (!Divides(static_cast<int>(g.h.stride), &y) || !Divides(static_cast<int>(g.w.stride), &x)) {
      return T(0.0f);
    }
    if (y >= static_cast<int>(g.h.out) || x >= static_cast<int>(g.w.out)) return T(0.0f);
    return from[n.gathered + k.gathered + y * g.w.out + x];
  } else {
    const int y = n.y + k.y, x = n.x + k.x;
    if (y < 0 || x < 0 || y >= static_cast<int>(g.h.in) || x >= static_cast<int>(g.w.in)) {
      return T(0.0f);
    }
    return from[n.gathered + k.gathered];
  }
}

// The part of the result that a block makes, and its part of the depth.
struct ConvPiece {
  int64_t group, split, row, column, begin, end;  // of depth
};
template <ConvOf kOf>
__device__ inline ConvPiece PieceOf(const ConvGeometry& g, const ConvExtent& size, int64_t piece,
                                    int64_t splits, int chunk) {
  const int64_t down = (size.rows + kConvTile - 1) / kConvTile;
  const int64_t across = (size.columns + kConvTile - 1) / kConvTile;
  ConvPiece p;
  p.row = piece % down * kConvTile;
  piece /= down;
  p.column = piece % across * kConvTile;
  piece /= across;
  p.group = piece % g.groups;
  p.split = piece / g.groups;
  const int64_t chunks = (size.depth + chunk - 1) / chunk;
  p.begin = chunks * p.split / splits * chunk;
  p.end = chunks * (p.split + 1) / splits * chunk;
  if (p.end > size.depth) p.end = size.depth;
  return p;
}
template <ConvOf kOf>
inline int64_t ConvPieces(const ConvGeometry& g, int64_t splits) {
  const ConvExtent size = ExtentOf<kOf>(g);
  return (size.rows + kConvTile - 1) / kConvTile * ((size.columns + kConvTile - 1) / kConvTile) *
         g.groups * splits;
}

// Operands by their part in the product.
template <ConvOf kOf, typename T>
__device__ inline const T* LeftOf(const GpuConv& f) {
  return static_cast<const T*>(kOf == ConvOf::kWeightGrad ? f.y : f.w);
}
template <ConvOf kOf, typename T>
__device__ inline const T* GatheredOf(const GpuConv& f) {
  return static_cast<const T*>(kOf == ConvOf::kInputGrad ? f.y : f.x);
}

// One element of the result, from its sum.
template <ConvOf kOf, typename T>
__device__ inline void StoreConv(const GpuConv& f, const ConvPiece& p, const ConvRows& rows,
                                 int64_t row, const ConvColumn& column, Compute<T> sum) {
  using C = Compute<T>;
  const int64_t at = rows.result + row * rows.result_stride + column.result;
  if constexpr (kOf == ConvOf::kForward) {
    if (f.bias != nullptr)
      sum += Widen(static_cast<const T*>(f.bias)[p.group * f.g.out_group() + row]);
    static_cast<T*>(f.y)[at] = Narrow<T>(sum);
  } else if constexpr (kOf == ConvOf::kInputGrad) {
    static_cast<T*>(f.x)[at] = Narrow<T>(sum);
  } else if (f.partial != nullptr) {
    static_cast<C*>(f.partial)[p.split * f.g.out_channels * f.g.taps() + at] = sum;
  } else {
    static_cast<T*>(f.w)[at] = Narrow<T>(sum);
  }
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_CONV_CUH_
