// Convolution element by element, where products of matrices have nothing to share: depthwise
// geometry, and axes too long for 32 bits. And which kernels run.
#include "tally/ops/conv.cuh"
#include "tally/ops/planes.cuh"

namespace tally::gpu {
namespace {

template <typename T>
__global__ void ConvForwardKernel(GpuConv f, PlaneParts parts, int64_t pieces) {
  const ConvGeometry& g = f.g;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t plane = parts.PlaneOf(piece), at = parts.ElementOf(piece);
    if (at >= parts.plane) continue;
    const int64_t n = plane / g.out_channels, o = plane % g.out_channels;
    const int64_t row = at / parts.width, col = at % parts.width;
    const T* x = static_cast<const T*>(f.x) +
                 (n * g.in_channels + o / g.out_group() * g.in_group()) * g.in_plane();
    const T* w = static_cast<const T*>(f.w) + o * g.taps();
    Compute<T> sum = f.bias == nullptr ? 0 : Widen(static_cast<const T*>(f.bias)[o]);
    for (int64_t c = 0; c < g.in_group(); ++c, x += g.in_plane()) {
      for (int64_t i = 0; i < g.h.kernel; ++i, w += g.w.kernel) {
        const int64_t r = row * g.h.stride + g.h.offset(i);
        if (r < 0 || r >= g.h.in) continue;
        for (int64_t j = 0; j < g.w.kernel; ++j) {
          const int64_t q = col * g.w.stride + g.w.offset(j);
          if (q >= 0 && q < g.w.in) sum += Widen(w[j]) * Widen(x[r * g.w.in + q]);
        }
      }
    }
    static_cast<T*>(f.y)[plane * parts.plane + at] = Narrow<T>(sum);
  }
}

template <typename T>
__global__ void ConvInputGradKernel(GpuConv f, PlaneParts parts, int64_t pieces) {
  const ConvGeometry& g = f.g;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t plane = parts.PlaneOf(piece), at = parts.ElementOf(piece);
    if (at >= parts.plane) continue;
    const int64_t n = plane / g.in_channels, c = plane % g.in_channels;
    const int64_t row = at / parts.width, col = at % parts.width;
    const int64_t first = c / g.in_group() * g.out_group();
    Compute<T> sum = 0;
    for (int64_t o = first; o < first + g.out_group(); ++o) {
      const T* const dy = static_cast<const T*>(f.y) + (n * g.out_channels + o) * g.out_plane();
      const T* w = static_cast<const T*>(f.w) + o * g.taps() + c % g.in_group() * g.kernel();
      for (int64_t i = 0; i < g.h.kernel; ++i, w += g.w.kernel) {
        const int64_t r = row - g.h.offset(i);
        if (r < 0 || r % g.h.stride != 0 || r / g.h.stride >= g.h.out) continue;
        const T* const from = dy + r / g.h.stride * g.w.out;
        for (int64_t j = 0; j < g.w.kernel; ++j) {
          const int64_t q = col - g.w.offset(j);
          if (q < 0 || q % g.w.stride != 0 || q / g.w.stride >= g.w.out) continue;
          sum += Widen(w[j]) * Widen(from[q / g.w.stride]);
        }
      }
    }
    static_cast<T*>(f.x)[plane * parts.plane + at] = Narrow<T>(sum);
  }
}

// A block makes one element of dw: `lanes` threads side by side go along rows of dy.
template <typename T>
__global__ void ConvWeightGradKernel(GpuConv f, int lanes, int64_t elements) {
  const ConvGeometry& g = f.g;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t group = static_cast<int64_t>(threadIdx.x) / lanes, groups = blockDim.x / lanes;
  for (int64_t at = blockIdx.x; at < elements; at += gridDim.x) {
    const int64_t o = at / g.taps(), tap = at % g.taps();
    const int64_t i = tap / g.w.kernel % g.h.kernel, j = tap % g.w.kernel;
    const int64_t channel = o / g.out_group() * g.in_group() + tap / g.kernel();
    const int64_t top = g.h.begin(i), rows = g.h.end(i) - top;
    const int64_t left = g.w.begin(j), right = g.w.end(j);
    Compute<T> sum = 0;
    for (int64_t k = group; k < g.batch * rows; k += groups) {
      const int64_t n = k / rows, r = top + k % rows;
      const T* const dy =
          static_cast<const T*>(f.y) + (n * g.out_channels + o) * g.out_plane() + r * g.w.out;
      const T* const x = static_cast<const T*>(f.x) + (n * g.in_channels + channel) * g.in_plane() +
                         (r * g.h.stride + g.h.offset(i)) * g.w.in + g.w.offset(j);
      for (int64_t c = left + lane; c < right; c += lanes)
        sum += Widen(dy[c]) * Widen(x[c * g.w.stride]);
    }
    sum = BlockReduce(sum, Plus(), Shared<Compute<T>>());
    if (threadIdx.x == 0) static_cast<T*>(f.w)[at] = Narrow<T>(sum);
  }
}

template <typename T>
__global__ void ConvBiasKernel(const T* bias, T* y, int64_t channels, PlaneParts parts,
                               int64_t pieces) {
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t plane = parts.PlaneOf(piece), at = parts.ElementOf(piece);
    if (at < parts.plane) y[plane * parts.plane + at] = bias[plane % channels];
  }
}

// dw from its partial sums, in their order.
template <typename T>
__global__ void ConvPartialsKernel(GpuConv f, int64_t elements) {
  const auto* const partial = static_cast<const Compute<T>*>(f.partial);
  for (int64_t i = GlobalThread(); i < elements; i += GlobalThreads()) {
    Compute<T> sum = 0;
    for (int64_t s = 0; s < f.splits; ++s) sum += partial[s * elements + i];
    static_cast<T*>(f.w)[i] = Narrow<T>(sum);
  }
}

bool ByElement(const ConvGeometry& g) { return g.depthwise() || !FitsInt(g.h) || !FitsInt(g.w); }
GpuError LaunchProduct(const GpuCall& call, ConvOf of, const GpuConv& f) {
  const bool narrow = f.dtype == DType::kBF16 || f.dtype == DType::kF16;
  return narrow ? LaunchConvTensor(call, of, f) : LaunchConvPlain(call, of, f);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchConvForward(const GpuCall& call, const GpuConv& f) {
  using namespace gpu;  // NOLINT: this is their launcher
  if (!ByElement(f.g)) return LaunchProduct(call, ConvOf::kForward, f);
  return ForPlanes(f.g.batch * f.g.out_channels, f.g.h.out, f.g.w.out,
                   [&](const PlaneParts& parts, int64_t pieces, int threads) {
                     return VisitFloat(f.dtype, [&](auto element) {
                       return Launch(ConvForwardKernel<decltype(element)>, GridForPieces(pieces),
                                     threads, 0, call, f, parts, pieces);
                     });
                   });
}

GpuError LaunchConvInputGrad(const GpuCall& call, const GpuConv& f) {
  using namespace gpu;  // NOLINT: this is their launcher
  if (!ByElement(f.g)) return LaunchProduct(call, ConvOf::kInputGrad, f);
  return ForPlanes(f.g.batch * f.g.in_channels, f.g.h.in, f.g.w.in,
                   [&](const PlaneParts& parts, int64_t pieces, int threads) {
                     return VisitFloat(f.dtype, [&](auto element) {
                       return Launch(ConvInputGradKernel<decltype(element)>, GridForPieces(pieces),
                                     threads, 0, call, f, parts, pieces);
                     });
                   });
}

GpuError LaunchConvWeightGrad(const GpuCall& call, const GpuConv& f) {
  using namespace gpu;  // NOLINT: this is their launcher
  const int64_t elements = f.g.out_channels * f.g.taps();
  if (ByElement(f.g)) {
    int lanes = 4;
    while (lanes < kWarp && lanes < f.g.w.out) lanes *= 2;
    return VisitFloat(f.dtype, [&](auto element) {
      using T = decltype(element);
      return Launch(ConvWeightGradKernel<T>, GridForPieces(elements), kBlock,
                    ReduceBytes<Compute<T>>(kBlock), call, f, lanes, elements);
    });
  }
  const GpuError error = LaunchProduct(call, ConvOf::kWeightGrad, f);
  if (error != cudaSuccess || f.partial == nullptr) return error;
  return VisitFloat(f.dtype, [&](auto element) {
    return Launch(ConvPartialsKernel<decltype(element)>, GridFor(call, elements), kBlock, 0, call,
                  f, elements);
  });
}

GpuError LaunchConvBias(const GpuCall& call, const GpuConv& f) {
  using namespace gpu;  // NOLINT: this is their launcher
  return ForPlanes(f.g.batch * f.g.out_channels, f.g.h.out, f.g.w.out,
                   [&](const PlaneParts& parts, int64_t pieces, int threads) {
                     return VisitSize(ItemSize(f.dtype), [&](auto element) {
                       using T = decltype(element);
                       return Launch(ConvBiasKernel<T>, GridForPieces(pieces), threads, 0, call,
                                     static_cast<const T*>(f.bias), static_cast<T*>(f.y),
                                     f.g.out_channels, parts, pieces);
                     });
                   });
}

}  // namespace tally::internal
