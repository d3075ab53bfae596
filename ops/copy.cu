#include "tally/ops/copy.cuh"

#include <bit>

#include "tally/ops/convert.h"

namespace tally::gpu {
namespace {

using internal::Convert;

// ---- copies

template <typename T>
__global__ void FlatCopyKernel(const T* x, T* y, int64_t n) {
  const int64_t whole = CanVectorize(x) && CanVectorize(y) ? n / kVector<T> : 0;
  for (int64_t i = GlobalThread(); i < whole; i += GlobalThreads()) {
    StoreVector(y + i * kVector<T>, LoadVector(x + i * kVector<T>));
  }
  for (int64_t i = whole * kVector<T> + GlobalThread(); i < n; i += GlobalThreads()) y[i] = x[i];
}

template <typename U>
__global__ void StridedCopyKernel(GpuPair p) {
  auto* const to = static_cast<U*>(p.target);
  const auto* const from = static_cast<const U*>(p.source);
  for (int64_t i = GlobalThread(); i < p.numel; i += GlobalThreads()) {
    const Places at = PlacesOf(p, i);
    to[at.to] = from[at.from];
  }
}

constexpr int kSide = 32;  // of a tile that a block turns over in shared memory
constexpr int kTileRows = kBlock / kSide;

// The target has stride 1 along the last axis, the source along `axis`.
template <typename T>
__global__ void TransposeKernel(GpuPair p, int axis) {
  T* const tile = Shared<T>();  // a column more than a side: no two lanes meet in a bank
  const int last = p.rank - 1;
  const int64_t rows = p.dims[axis], columns = p.dims[last];
  const int64_t down = (rows + kSide - 1) / kSide, across = (columns + kSide - 1) / kSide;
  const int64_t tiles = p.numel / (rows * columns) * down * across;
  const int x = static_cast<int>(threadIdx.x) % kSide, y = static_cast<int>(threadIdx.x) / kSide;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t column = t % across * kSide, row = t / across % down * kSide;
    int64_t outer = t / across / down;
    const auto* from = static_cast<const T*>(p.source);
    auto* to = static_cast<T*>(p.target);
    for (int d = last - 1; d >= 0; --d) {
      if (d == axis) continue;
      const int64_t index = outer % p.dims[d];
      outer /= p.dims[d];
      from += index * p.from[d];
      to += index * p.to[d];
    }
    for (int c = y; c < kSide; c += kTileRows) {
      if (column + c < columns && row + x < rows) {
        tile[c * (kSide + 1) + x] = from[row + x + (column + c) * p.from[last]];
      }
    }
    __syncthreads();
    for (int r = y; r < kSide; r += kTileRows) {
      if (column + x < columns && row + r < rows) {
        to[(row + r) * p.to[axis] + column + x] = tile[x * (kSide + 1) + r];
      }
    }
    __syncthreads();
  }
}

// The axis along which the source has stride 1 where tiles pay, or -1.
int TurnedAxis(const GpuPair& p) {
  constexpr int64_t kLeast = 8;
  const int last = p.rank - 1;
  if (p.to[last] != 1 || p.from[last] == 1 || p.dims[last] < kLeast) return -1;
  for (int d = 0; d < last; ++d) {
    if (p.from[d] == 1 && p.dims[d] >= kLeast) return d;
  }
  return -1;
}

// Runs of neighbours move in the largest units that divide everything. Gives the size of a unit.
int64_t TakeLargerUnits(GpuPair& p, int64_t item) {
  const int last = p.rank - 1;
  if (p.to[last] != 1 || p.from[last] != 1) return item;
  for (; item < 16; item *= 2) {
    bool even = p.dims[last] % 2 == 0 && IsEven(item, p.target) && IsEven(item, p.source);
    for (int d = 0; d < last; ++d) even = even && p.to[d] % 2 == 0 && p.from[d] % 2 == 0;
    if (!even) break;
    p.numel /= 2;
    p.dims[last] /= 2;
    for (int d = 0; d < last; ++d) {
      p.to[d] /= 2;
      p.from[d] /= 2;
    }
  }
  return item;
}

template <typename T>
__global__ void StridedFillKernel(GpuPair p, T value) {
  for (int64_t i = GlobalThread(); i < p.numel; i += GlobalThreads()) {
    static_cast<T*>(p.target)[PlacesOf(p, i).to] = value;
  }
}

// ---- casts

// A NaN in another width keeps its sign and the top of its payload, as on the CPU.
__device__ inline float NarrowNan(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const auto payload = static_cast<uint32_t>(bits >> 29 & 0x7fffffu);
  return std::bit_cast<float>(static_cast<uint32_t>(bits >> 63) << 31 | 0x7fc00000u | payload);
}
__device__ inline double WidenNan(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<double>(static_cast<uint64_t>(bits >> 31) << 63 | 0x7ff8000000000000u |
                               static_cast<uint64_t>(bits & 0x7fffffu) << 29);
}
template <typename To>
__device__ inline To CastFloat(float x) {
  if constexpr (std::is_same_v<To, double>) {
    if (x != x) return WidenNan(x);
  }
  return Convert<To>(x);
}
template <typename To>
__device__ inline To CastDouble(double x) {
  if constexpr (std::is_same_v<To, float> || internal::kIsNarrowFloat<To>) {
    if (x != x) return Convert<To>(NarrowNan(x));
  }
  return Convert<To>(x);
}

template <typename T>
__device__ inline T At(const void* x, int64_t i) {
  return static_cast<const T*>(x)[i];
}

// Element `i` of x. Floats pass through float or double, everything else through i64: none of them
// loses anything.
template <typename To>
__device__ inline To CastElement(DType from, const void* x, int64_t i) {
  switch (from) {
    case DType::kF64:
      return CastDouble<To>(At<double>(x, i));
    case DType::kF32:
      return CastFloat<To>(At<float>(x, i));
    case DType::kBF16:
      return CastFloat<To>(Widen(At<BF16>(x, i)));
    case DType::kF16:
      return CastFloat<To>(Widen(At<F16>(x, i)));
    case DType::kF8E4M3FN:
      return CastFloat<To>(Widen(At<F8E4M3FN>(x, i)));
    case DType::kF8E5M2:
      return CastFloat<To>(Widen(At<F8E5M2>(x, i)));
    case DType::kI64:
      return Convert<To>(At<int64_t>(x, i));
    case DType::kI32:
      return Convert<To>(static_cast<int64_t>(At<int32_t>(x, i)));
    default:
      return Convert<To>(static_cast<int64_t>(At<uint8_t>(x, i)));  // u8, bool
  }
}

template <typename To>
__global__ void CastKernel(DType from, const void* x, To* y, int64_t n) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) y[i] = CastElement<To>(from, x, i);
}

// Between f32 and the 16-bit floats, 16 bytes of the wider at a time.
template <typename From, typename To>
__global__ void CastVectorKernel(const From* x, To* y, int64_t n) {
  constexpr int kN = 4;
  const bool aligned = reinterpret_cast<uintptr_t>(x) % (kN * sizeof(From)) == 0 &&
                       reinterpret_cast<uintptr_t>(y) % (kN * sizeof(To)) == 0;
  const int64_t whole = aligned ? n / kN : 0;
  for (int64_t i = GlobalThread(); i < whole; i += GlobalThreads()) {
    const auto source = LoadVector<From, kN>(x + i * kN);
    Vector<To, kN> target;
#pragma unroll
    for (int k = 0; k < kN; ++k) target.v[k] = Convert<To>(source.v[k]);
    StoreVector<To, kN>(y + i * kN, target);
  }
  for (int64_t i = whole * kN + GlobalThread(); i < n; i += GlobalThreads()) {
    y[i] = Convert<To>(x[i]);
  }
}

template <typename From, typename To>
GpuError CastVectors(const GpuCall& call, const void* x, void* y, int64_t n) {
  return Launch(CastVectorKernel<From, To>, GridFor(call, (n + 3) / 4), kBlock, 0, call,
                static_cast<const From*>(x), static_cast<To*>(y), n);
}
template <typename To>
GpuError CastAny(const GpuCall& call, DType from, const void* x, void* y, int64_t n) {
  return Launch(CastKernel<To>, GridFor(call, n), kBlock, 0, call, from, x, static_cast<To*>(y), n);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchCopy(const GpuCall& call, const GpuPair& pair, int64_t item) {
  using namespace gpu;  // NOLINT: what kernels are made of
  if (pair.rank == 1 && pair.to[0] == 1 && pair.from[0] == 1) {
    return VisitSize(item, [&](auto element) {
      using T = decltype(element);
      const int64_t vectors = (pair.numel + kVector<T> - 1) / kVector<T>;
      return Launch(FlatCopyKernel<T>, GridFor(call, vectors), kBlock, 0, call,
                    static_cast<const T*>(pair.source), static_cast<T*>(pair.target), pair.numel);
    });
  }
  if (const int axis = TurnedAxis(pair); axis >= 0) {
    const int64_t rows = pair.dims[axis], columns = pair.dims[pair.rank - 1];
    const int64_t tiles = pair.numel / (rows * columns) * ((rows + kSide - 1) / kSide) *
                          ((columns + kSide - 1) / kSide);
    return VisitSize(item, [&](auto element) {
      using T = decltype(element);
      return Launch(TransposeKernel<T>, GridForRows(call, tiles), kBlock,
                    sizeof(T) * kSide * (kSide + 1), call, pair, axis);
    });
  }
  GpuPair units = pair;
  return VisitUnit(TakeLargerUnits(units, item), [&](auto unit) {
    return Launch(StridedCopyKernel<decltype(unit)>, GridFor(call, units.numel), kBlock, 0, call,
                  units);
  });
}

GpuError LaunchFill(const GpuCall& call, const GpuPair& pair, int64_t item, uint64_t bits) {
  return gpu::VisitSize(item, [&](auto element) {
    using T = decltype(element);
    return gpu::Launch(gpu::StridedFillKernel<T>, gpu::GridFor(call, pair.numel), gpu::kBlock, 0,
                       call, pair, static_cast<T>(bits));
  });
}

GpuError LaunchCast(const GpuCall& call, DType from, DType to, const void* x, void* y, int64_t n) {
  using namespace gpu;  // NOLINT: what kernels are made of
  if (from == DType::kF32 && to == DType::kBF16) return CastVectors<float, BF16>(call, x, y, n);
  if (from == DType::kF32 && to == DType::kF16) return CastVectors<float, F16>(call, x, y, n);
  if (from == DType::kBF16 && to == DType::kF32) return CastVectors<BF16, float>(call, x, y, n);
  if (from == DType::kF16 && to == DType::kF32) return CastVectors<F16, float>(call, x, y, n);
  switch (to) {
    case DType::kF64:
      return CastAny<double>(call, from, x, y, n);
    case DType::kF32:
      return CastAny<float>(call, from, x, y, n);
    case DType::kBF16:
      return CastAny<BF16>(call, from, x, y, n);
    case DType::kF16:
      return CastAny<F16>(call, from, x, y, n);
    case DType::kF8E4M3FN:
      return CastAny<F8E4M3FN>(call, from, x, y, n);
    case DType::kF8E5M2:
      return CastAny<F8E5M2>(call, from, x, y, n);
    case DType::kI64:
      return CastAny<int64_t>(call, from, x, y, n);
    case DType::kI32:
      return CastAny<int32_t>(call, from, x, y, n);
    case DType::kU8:
      return CastAny<uint8_t>(call, from, x, y, n);
    case DType::kBool:
      return CastAny<bool>(call, from, x, y, n);
  }
  return cudaErrorInvalidValue;
}

}  // namespace tally::internal
