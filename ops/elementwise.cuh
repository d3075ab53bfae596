// The kernel of every elementwise op: one row's text over GpuLane.
//
// A row is a struct with
//   kIn, kOut                 how many inputs and outputs
//   kBroadcasts               whether inputs may have strides of their own
//   Run(const L* in, L* out)  for L = GpuLane of the compute type; rows that compare have kOut = 1
//                             and set a bool through Compare(const L* in)
#ifndef TALLY_OPS_ELEMENTWISE_CUH_
#define TALLY_OPS_ELEMENTWISE_CUH_

#include "tally/ops/elementwise_gpu.h"
#include "tally/ops/lane_gpu.cuh"
#include "tally/ops/row_constants.h"
#include "tally/tensor/kernel.cuh"

namespace tally::gpu {

using internal::GpuElementwise;

// Neighbours that fill 16 bytes of the wider of both.
template <typename T, typename R>
inline constexpr int kGroup = sizeof(T) >= sizeof(R) ? kVector<T> : kVector<R>;

// Where each input has an element of the index space.
template <int kIn>
struct Offsets {
  int64_t at[kIn];
};
template <int kIn, typename Index>
__device__ inline Offsets<kIn> Unravel(const GpuElementwise& e, Index i) {
  Offsets<kIn> o = {};
  for (int d = e.rank - 1; d > 0; --d) {
    const auto dim = static_cast<Index>(e.dims[d]);
    const Index rest = i / dim, index = i - rest * dim;
    i = rest;
    for (int k = 0; k < kIn; ++k) o.at[k] += static_cast<int64_t>(index) * e.strides[k][d];
  }
  for (int k = 0; k < kIn; ++k) o.at[k] += static_cast<int64_t>(i) * e.strides[k][0];
  return o;
}
// Divisions of 32 bits where they do. Not inlined: it is the same in every kernel, and long.
template <int kIn>
TALLY_NOINLINE __device__ Offsets<kIn> OffsetsOf(const GpuElementwise& e, int64_t i) {
  if (e.numel <= INT32_MAX) return Unravel<kIn>(e, static_cast<uint32_t>(i));
  return Unravel<kIn>(e, i);
}

// Whether input `k` repeats along the last axis, so that one element does for a vector.
__host__ __device__ inline bool StaysAlongRows(const GpuElementwise& e, int k) {
  return !e.flat && e.strides[k][e.rank - 1] == 0;
}
// Whether input `k` can be read by vectors of n elements of `item` bytes wherever those of the
// output lie: they end where its rows do, and lie together or are one element.
inline bool ReadsByVectors(const GpuElementwise& e, int k, int n, size_t item) {
  if (e.in[k] == nullptr || e.repeats[k]) return true;
  if (!e.flat) {
    const int last = e.rank - 1;
    if (e.dims[last] % n != 0) return false;
    if (e.strides[k][last] == 0) return true;
    if (e.strides[k][last] != 1) return false;
    for (int d = 0; d < last; ++d) {
      if (e.strides[k][d] % n != 0) return false;
    }
  }
  return reinterpret_cast<uintptr_t>(e.in[k]) % (static_cast<size_t>(n) * item) == 0;
}
inline bool WritesByVectors(const GpuElementwise& e, int j, int n, size_t item) {
  return reinterpret_cast<uintptr_t>(e.out[j]) % (static_cast<size_t>(n) * item) == 0;
}

// Elements [at, at + kN) of an input, or the one at `at` for all.
template <typename T, int kN>
__device__ inline Vector<T, kN> LoadInput(const T* in, int64_t at, bool stays) {
  if (!stays) return LoadVector<T, kN>(in + at);
  const T value = in[at];
  Vector<T, kN> v;
#pragma unroll
  for (int j = 0; j < kN; ++j) v.v[j] = value;
  return v;
}

// T and R are how inputs and outputs lie in memory. OffsetsOf takes the address of `e`: were it no
// constant of the grid, each thread would first have a copy in local memory.
template <class Row, typename T, typename R>
__global__ void __launch_bounds__(kBlock, 4)
    ElementwiseKernel(const __grid_constant__ GpuElementwise e, bool vectors) {
  using L = GpuLane<Compute<T>>;
  constexpr int kIn = Row::kIn, kOut = Row::kOut;
  constexpr int kN = kGroup<T, R>;
  const T* in[kIn];
  L repeated[kIn];
  bool stays[kIn];
  for (int k = 0; k < kIn; ++k) {
    in[k] = static_cast<const T*>(e.in[k]);
    stays[k] = false;
    if constexpr (Row::kBroadcasts) {
      repeated[k] = in[k] == nullptr ? L::Of(static_cast<Compute<T>>(e.number[k]))
                    : e.repeats[k]   ? L::Of(Widen(in[k][0]))
                                     : L::Of(Compute<T>());
      if (e.repeats[k]) in[k] = nullptr;
      stays[k] = StaysAlongRows(e, k);
    }
  }
  R* out[kOut];
  for (int j = 0; j < kOut; ++j) out[j] = static_cast<R*>(e.out[j]);
  const auto offsets_of = [&](int64_t i) {
    if constexpr (Row::kBroadcasts) {
      if (!e.flat) return OffsetsOf<kIn>(e, i);
    }
    Offsets<kIn> same;
    for (int k = 0; k < kIn; ++k) same.at[k] = i;
    return same;
  };
  const auto run = [&](const L* lanes, R* const* to) {
    if constexpr (std::is_same_v<R, bool>) {
      *to[0] = Row::Compare(lanes);
    } else {
      L results[kOut];
      Row::Run(lanes, results);
      for (int j = 0; j < kOut; ++j) *to[j] = Narrow<R>(results[j].v);
    }
  };
  const int64_t whole = vectors ? e.numel / kN : 0;
  for (int64_t i = GlobalThread(); i < whole; i += GlobalThreads()) {
    const Offsets<kIn> at = offsets_of(i * kN);
    Vector<T, kN> x[kIn];
    Vector<R, kN> y[kOut];
    for (int k = 0; k < kIn; ++k) {
      if (!Row::kBroadcasts || in[k] != nullptr) {
        x[k] = LoadInput<T, kN>(in[k], at.at[k], stays[k]);
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      L lanes[kIn];
      for (int k = 0; k < kIn; ++k) {
        lanes[k] = Row::kBroadcasts && in[k] == nullptr ? repeated[k] : L::Of(Widen(x[k].v[n]));
      }
      R* to[kOut];
      for (int j = 0; j < kOut; ++j) to[j] = &y[j].v[n];
      run(lanes, to);
    }
    for (int j = 0; j < kOut; ++j) StoreVector<R, kN>(out[j] + i * kN, y[j]);
  }
  // What is left of vectors, or everything, one by one.
#pragma unroll 1
  for (int64_t i = whole * kN + GlobalThread(); i < e.numel; i += GlobalThreads()) {
    const Offsets<kIn> at = offsets_of(i);
    L lanes[kIn];
    for (int k = 0; k < kIn; ++k) {
      lanes[k] = Row::kBroadcasts && in[k] == nullptr ? repeated[k] : L::Of(Widen(in[k][at.at[k]]));
    }
    R* to[kOut];
    for (int j = 0; j < kOut; ++j) to[j] = out[j] + i;
    run(lanes, to);
  }
}

template <class Row, typename T, typename R = T>
GpuError LaunchElementwise(const GpuCall& call, const GpuElementwise& e) {
  constexpr int kN = kGroup<T, R>;
  bool vectors = true;
  for (int k = 0; k < Row::kIn; ++k) vectors = vectors && ReadsByVectors(e, k, kN, sizeof(T));
  for (int j = 0; j < Row::kOut; ++j) vectors = vectors && WritesByVectors(e, j, kN, sizeof(R));
  const int64_t groups = vectors ? (e.numel + kN - 1) / kN : e.numel;
  return Launch(ElementwiseKernel<Row, T, R>, GridFor(call, groups), kBlock, 0, call, e, vectors);
}
template <class Row>
GpuError LaunchFloats(const GpuCall& call, const GpuElementwise& e) {
  return VisitFloat(
      e.dtype, [&](auto element) { return LaunchElementwise<Row, decltype(element)>(call, e); });
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_ELEMENTWISE_CUH_
