// Fused attention by plain arithmetic, forward.
#include "tally/ops/sdpa_plain.cuh"

namespace tally::gpu {
namespace {

using namespace plain;  // NOLINT: what both directions are made of

// Over the 16 threads that hold a row.
template <typename C, typename Fn>
__device__ inline C RowReduce(C value, Fn fn) {
#pragma unroll
  for (int step = kSide / 2; step > 0; step /= 2)
    value = fn(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
struct GreaterNumber {  // NaN gives way: it shows in the sum
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ double operator()(double a, double b) const { return fmax(a, b); }
};

// A row of scores while it passes: the greatest so far, and this thread's part of the sum.
template <typename C>
struct OnlineRow {
  C top = MinusInfinity<C>(), sum = 0;
  KeyRange keys;
};

// Scores into weights; what was summed before is multiplied by the factor that changed.
template <typename C>
__device__ inline void SoftmaxTile(const SdpaScore<C>& score, const Scores<C>& x, int64_t key,
                                   OnlineRow<C> (&rows)[kOwn], Plain<C>& s, Result<C>& sum) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    OnlineRow<C>& row = rows[i];
    const SeenKeys seen = SeenIn(row.keys, key);
    C values[kOwn], top = row.top;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int at = Across() + kSide * j;
      values[j] = at >= seen.from && at < seen.to ? score.Of(x[i][j]) : MinusInfinity<C>();
      top = GreaterNumber()(top, values[j]);
    }
    top = RowReduce(top, GreaterNumber());
    // Where nothing was seen yet every difference is to be -inf, not NaN.
    const C shift = top == MinusInfinity<C>() ? C() : top;
    const C factor = SdpaExp(row.top - shift);
    C part = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const C p = SdpaExp(values[j] - shift);
      part += p;
      s.weights[(kOwn * Down() + i) * Plain<C>::kWeightPitch + Across() + kSide * j] = p;
    }
    row.sum = row.sum * factor + part;
    row.top = top;
#pragma unroll
    for (int j = 0; j < Plain<C>::kOwnColumns; ++j) sum[i][j] *= factor;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks<T>)
    SdpaKernel(GpuSdpa f, int64_t pieces, int64_t chunks) {
  using C = Compute<T>;
  Plain<C>& s = *Shared<Plain<C>>();
  const SdpaScore<C> score(f);
  const int64_t tiles = (f.queries + kSdpaTile - 1) / kSdpaTile;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t column = piece % chunks * Plain<C>::kColumns;
    // The last tiles first: under a causal mask they have the most to do.
    const int64_t first = (tiles - 1 - piece / chunks % tiles) * kSdpaTile;
    const int64_t matrix = piece / chunks / tiles, batch = matrix / f.heads,
                  head = matrix % f.heads, kv_head = head / f.group;
    const TileRows<T> q = RowsOf<T>(f.in.q, batch, head, first, f.queries);
    const KeyRange all = KeysOfTile(f, first, q.count);
    OnlineRow<C> rows[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = kOwn * Down() + i;
      if (row < q.count) rows[i].keys = SdpaKeysOf(f, first + row);
    }
    Result<C> sum;
    Clear<C>(sum);
    for (int64_t key = all.begin; key < all.end; key += kSdpaTile) {
      Scores<C> x;
      MultiplyRows(q, RowsOf<T>(f.in.k, batch, kv_head, key, all.end), f.d, f.aligned, s, x);
      SoftmaxTile(score, x, key, rows, s, sum);
      AddProduct(RowsOf<T>(f.in.v, batch, kv_head, key, all.end), column, f.e, f.aligned, s, sum);
    }
    C factor[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool sees = rows[i].keys.begin < rows[i].keys.end;
      const C total = RowReduce(rows[i].sum, Plus());
      factor[i] = sees ? 1 / total : C();
      const int row = kOwn * Down() + i;
      if (column == 0 && Across() == 0 && row < q.count) {
        static_cast<C*>(f.lse)[matrix * f.queries + first + row] =
            sees ? rows[i].top + SdpaLog(total) : MinusInfinity<C>();
      }
    }
    StoreResult(sum, factor,
                static_cast<T*>(f.out) + ((batch * f.queries + first) * f.heads + head) * f.e,
                f.heads * f.e, q.count, column, f.e);
  }
}

}  // namespace

GpuError LaunchSdpaPlain(const GpuCall& call, const GpuSdpa& f) {
  return VisitFloat(f.dtype, [&](auto element) {
    using T = decltype(element);
    using C = Compute<T>;
    const int64_t chunks = ChunksOf<C>(f.e);
    const int64_t pieces = f.batch * f.heads * SdpaTilesOf(f.queries) * chunks;
    return Launch(SdpaKernel<T>, GridForPieces(pieces), kThreads, sizeof(Plain<C>), call, f, pieces,
                  chunks);
  });
}

}  // namespace tally::gpu
