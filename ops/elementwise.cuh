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

template <typename Index, int kIn>
__device__ inline void Unravel(const GpuElementwise& e, Index i, int64_t* at) {
  for (int k = 0; k < kIn; ++k) at[k] = 0;
  for (int d = e.rank - 1; d > 0; --d) {
    const auto dim = static_cast<Index>(e.dims[d]);
    const Index index = i % dim;
    i /= dim;
    for (int k = 0; k < kIn; ++k) at[k] += static_cast<int64_t>(index) * e.strides[k][d];
  }
  for (int k = 0; k < kIn; ++k) at[k] += static_cast<int64_t>(i) * e.strides[k][0];
}
// Offsets of element `i` of the index space in each input. Divisions of 32 bits where they do. Not
// inlined: it is the same in every kernel, and long.
template <int kIn>
TALLY_NOINLINE __device__ void OffsetsOf(const GpuElementwise& e, int64_t i, int64_t* at) {
  if (e.numel <= INT32_MAX) {
    Unravel<uint32_t, kIn>(e, static_cast<uint32_t>(i), at);
  } else {
    Unravel<int64_t, kIn>(e, i, at);
  }
}

// T and R are how inputs and outputs lie in memory. OffsetsOf takes the address of `e`: were it no
// constant of the grid, each thread would first have a copy in local memory.
template <class Row, typename T, typename R>
__global__ void ElementwiseKernel(const __grid_constant__ GpuElementwise e) {
  using L = GpuLane<Compute<T>>;
  constexpr int kIn = Row::kIn, kOut = Row::kOut;
  constexpr int kN = kGroup<T, R>;
  const T* in[kIn];
  L repeated[kIn];
  bool vectors = e.flat;
  for (int k = 0; k < kIn; ++k) {
    in[k] = static_cast<const T*>(e.in[k]);
    repeated[k] = in[k] == nullptr ? L::Of(static_cast<Compute<T>>(e.number[k]))
                  : e.repeats[k]   ? L::Of(Widen(in[k][0]))
                                   : L::Of(Compute<T>());
    if (e.repeats[k]) in[k] = nullptr;
    vectors = vectors && (in[k] == nullptr || CanVectorize(in[k]));
  }
  R* out[kOut];
  for (int j = 0; j < kOut; ++j) {
    out[j] = static_cast<R*>(e.out[j]);
    vectors = vectors && CanVectorize(out[j]);
  }
  const int64_t whole = vectors ? e.numel / kN : 0;
  for (int64_t i = GlobalThread(); i < whole; i += GlobalThreads()) {
    Vector<T, kN> x[kIn];
    Vector<R, kN> y[kOut];
    for (int k = 0; k < kIn; ++k) {
      if (in[k] != nullptr) x[k] = LoadVector<T, kN>(in[k] + i * kN);
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      L lanes[kIn], results[kOut];
      for (int k = 0; k < kIn; ++k) {
        lanes[k] = in[k] == nullptr ? repeated[k] : L::Of(Widen(x[k].v[n]));
      }
      if constexpr (std::is_same_v<R, bool>) {
        y[0].v[n] = Row::Compare(lanes);
      } else {
        Row::Run(lanes, results);
        for (int j = 0; j < kOut; ++j) y[j].v[n] = Narrow<R>(results[j].v);
      }
    }
    for (int j = 0; j < kOut; ++j) StoreVector<R, kN>(out[j] + i * kN, y[j]);
  }
  // What is left of vectors, or everything, one by one.
#pragma unroll 1
  for (int64_t i = whole * kN + GlobalThread(); i < e.numel; i += GlobalThreads()) {
    int64_t at[kIn];
    for (int k = 0; k < kIn; ++k) at[k] = i;
    if constexpr (Row::kBroadcasts) {
      if (!e.flat) OffsetsOf<kIn>(e, i, at);
    }
    L lanes[kIn], results[kOut];
    for (int k = 0; k < kIn; ++k) {
      lanes[k] = in[k] == nullptr ? repeated[k] : L::Of(Widen(in[k][at[k]]));
    }
    if constexpr (std::is_same_v<R, bool>) {
      out[0][i] = Row::Compare(lanes);
    } else {
      Row::Run(lanes, results);
      for (int j = 0; j < kOut; ++j) out[j][i] = Narrow<R>(results[j].v);
    }
  }
}

template <class Row, typename T, typename R = T>
GpuError LaunchElementwise(const GpuCall& call, const GpuElementwise& e) {
  const int64_t groups = (e.numel + kGroup<T, R> - 1) / kGroup<T, R>;
  return Launch(ElementwiseKernel<Row, T, R>, GridFor(call, groups), kBlock, 0, call, e);
}
template <class Row>
GpuError LaunchFloats(const GpuCall& call, const GpuElementwise& e) {
  return VisitFloat(
      e.dtype, [&](auto element) { return LaunchElementwise<Row, decltype(element)>(call, e); });
}

}  // namespace tally::gpu

#endif  // TALLY_OPS_ELEMENTWISE_CUH_
