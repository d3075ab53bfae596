#include "tally/ops/rope_gpu.h"

#include <cmath>

#include "tally/tensor/kernel.cuh"

namespace tally::gpu {
namespace {

using internal::GpuRope;

constexpr int kHighShift = 6;  // kRopeLow = 2^6

// cos and sin of `steps` 2^shift times f: the angle of each power of two is exact, and the sum of
// angles is a product.
__device__ inline void TurnBy(double f, int64_t steps, int shift, double& cosine, double& sine) {
  cosine = 1;
  sine = 0;
  for (int bit = 0; steps >> bit != 0; ++bit) {
    if ((steps >> bit & 1) == 0) continue;
    const double angle = f * static_cast<double>(int64_t{1} << (bit + shift));
    Turn(cos(angle), sin(angle), cosine, sine);
  }
}

// See FillRopeTable.
__global__ void TableKernel(RopeTable table, int64_t offset) {
  const int64_t n = (table.low + table.high) * table.pairs;
  for (int64_t e = GlobalThread(); e < n; e += GlobalThreads()) {
    const int64_t row = e / table.pairs, pair = e % table.pairs;
    const double f = table.Frequencies()[pair];
    const bool low = row < table.low;
    double cosine, sine;
    TurnBy(f, low ? row : row - table.low, low ? 0 : kHighShift, cosine, sine);
    if (low && offset != 0) {
      double c, s;
      TurnBy(f, offset, 0, c, s);
      Turn(c, s, cosine, sine);
    }
    table.Low(row)[pair] = cosine;  // the high rows lie behind the low ones
    table.Low(row)[table.pairs + pair] = sine;
  }
}

// Where the documents of one launch begin, in positions.
struct Documents {
  static constexpr int kMost = 256;
  int count = 0;
  int64_t first = 0, last = 0;  // positions of the launch
  uint32_t starts[kMost] = {};
};

__device__ inline int64_t PlaceOf(const Documents& documents, int64_t position) {
  int low = 0, high = documents.count - 1;  // the last that begins at `position` or before
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (documents.starts[middle] <= position) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return position - documents.starts[low];
}

constexpr int kLines = 8;  // of one position that a thread turns by the same sines

// A thread for kN neighbouring pairs of a position, and some lines.
template <typename T, int kN>
__global__ void RopeKernel(GpuRope a, RopeTable table,
                           const __grid_constant__ Documents documents) {
  using C = Compute<T>;
  const int64_t groups = a.pairs / kN, positions = documents.last - documents.first;
  const int64_t lines = a.outer.count * a.inner.count;
  const int64_t chunks = (lines + kLines - 1) / kLines;
  const double sign = a.inverse ? -1 : 1;
  for (int64_t task = GlobalThread(); task < chunks * positions * groups; task += GlobalThreads()) {
    const int64_t pair = task % groups * kN, rest = task / groups;
    const int64_t position = documents.first + rest % positions;
    const int64_t first = rest / positions * kLines;
    const int64_t place = PlaceOf(documents, position);
    const double* low = table.Low(place % kRopeLow) + pair;
    const double* high = table.High(place / kRopeLow) + pair;
    C cosine[kN], sine[kN];
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const double lc = low[i], ls = low[a.pairs + i], hc = high[i], hs = high[a.pairs + i];
      cosine[i] = static_cast<C>(lc * hc - ls * hs);
      sine[i] = static_cast<C>(sign * (ls * hc + lc * hs));
    }
    // Where the two vectors of a group lie: halves apart, or neighbours.
    const int64_t at = a.interleaved ? 2 * pair : pair;
    const int64_t next = a.interleaved ? kN : a.pairs;
    for (int64_t line = first; line < lines && line < first + kLines; ++line) {
      const int64_t outer = line / a.inner.count, inner = line % a.inner.count;
      const T* x = static_cast<const T*>(a.x) + a.outer.OffsetOf(outer) +
                   position * a.position_stride + a.inner.OffsetOf(inner) + at;
      T* y = static_cast<T*>(a.y) +
             ((outer * a.positions + position) * a.inner.count + inner) * a.features + at;
      const auto v = LoadVector<T, kN>(x), w = LoadVector<T, kN>(x + next);
      Vector<T, kN> to_v, to_w;
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        if (!a.interleaved) {
          const C p = Widen(v.v[i]), q = Widen(w.v[i]);
          to_v.v[i] = Narrow<T>(p * cosine[i] - q * sine[i]);
          to_w.v[i] = Narrow<T>(q * cosine[i] + p * sine[i]);
          continue;
        }
        // Pair i lies at 2i and 2i + 1 of both vectors in a row.
        const int even = 2 * i % kN, odd = (2 * i + 1) % kN;
        const bool before = 2 * i < kN, with = 2 * i + 1 < kN;
        const C p = Widen(before ? v.v[even] : w.v[even]), q = Widen(with ? v.v[odd] : w.v[odd]);
        const T to_p = Narrow<T>(p * cosine[i] - q * sine[i]);
        const T to_q = Narrow<T>(q * cosine[i] + p * sine[i]);
        (before ? to_v : to_w).v[even] = to_p;
        (with ? to_v : to_w).v[odd] = to_q;
      }
      StoreVector<T, kN>(y, to_v);
      StoreVector<T, kN>(y + next, to_w);
    }
  }
}

template <int kN>
bool Divides(const RopeAxes& axes) {
  for (int d = 0; d < axes.rank; ++d) {
    if (axes.strides[static_cast<size_t>(d)] % kN != 0) return false;
  }
  return true;
}
template <typename T, int kN>
bool CanGroup(const GpuRope& a) {
  constexpr uintptr_t kBytes = kN * sizeof(T);
  return a.pairs % kN == 0 && a.features % kN == 0 && a.position_stride % kN == 0 &&
         Divides<kN>(a.outer) && Divides<kN>(a.inner) &&
         reinterpret_cast<uintptr_t>(a.x) % kBytes == 0 &&
         reinterpret_cast<uintptr_t>(a.y) % kBytes == 0;
}

template <typename T, int kN>
GpuError Run(const GpuCall& call, const GpuRope& a, const RopeTable& table,
             const Documents& documents) {
  const int64_t lines = a.outer.count * a.inner.count;
  const int64_t tasks =
      (lines + kLines - 1) / kLines * (documents.last - documents.first) * (a.pairs / kN);
  return Launch(RopeKernel<T, kN>, GridFor(call, tasks), kBlock, 0, call, a, table, documents);
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchRope(const GpuCall& call, const GpuRope& rope, const RopeTable& table,
                    int64_t offset, const int64_t* lengths, int64_t count) {
  using namespace gpu;  // NOLINT: what kernels are made of
  GpuError error = Launch(TableKernel, GridFor(call, (table.low + table.high) * table.pairs),
                          kBlock, 0, call, table, offset);
  const auto launch = [&](const Documents& documents) {
    if (error != cudaSuccess || documents.first == documents.last) return;
    error = VisitFloat(rope.dtype, [&](auto element) {
      using T = decltype(element);
      constexpr int kN = sizeof(T) == 8 ? 2 : 4;
      return CanGroup<T, kN>(rope) ? Run<T, kN>(call, rope, table, documents)
                                   : Run<T, 1>(call, rope, table, documents);
    });
  };
  // As many documents to a launch as its parameters hold.
  Documents documents;
  for (int64_t i = 0; i < count; ++i) {
    if (documents.count == Documents::kMost) {
      launch(documents);
      documents.count = 0;
      documents.first = documents.last;
    }
    documents.starts[documents.count++] = static_cast<uint32_t>(documents.last);
    documents.last += lengths[i];
  }
  if (count == 0) {
    documents.count = 1;
    documents.last = rope.positions;
  }
  launch(documents);
  return error;
}

}  // namespace tally::internal
