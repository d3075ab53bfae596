// Fused attention by plain arithmetic, backward.
#include "tally/ops/sdpa_plain.cuh"

namespace tally::gpu {
namespace {

using namespace plain;  // NOLINT: what both directions are made of

template <typename T>
__global__ void DeltaKernel(GpuSdpa f) {
  const int64_t rows = f.batch * f.heads * f.queries;
  // Whole warps stay together for the sum: lanes beyond the rows take the last.
  for (int64_t i = GlobalThread() / kDeltaLanes; i - i % (kWarp / kDeltaLanes) < rows;
       i += GlobalThreads() / kDeltaLanes) {
    const int64_t row = i < rows ? i : rows - 1;
    const int64_t query = row % f.queries, head = row / f.queries % f.heads,
                  batch = row / f.queries / f.heads;
    const Compute<T> delta =
        DeltaOf(RowsOf<T>(f.grad.dy, batch, head, query, f.queries).data,
                RowsOf<T>(f.grad.out, batch, head, query, f.queries).data, f.e);
    if (i < rows && threadIdx.x % kDeltaLanes == 0) static_cast<Compute<T>*>(f.delta)[i] = delta;
  }
}

// Some columns of dq of a tile of queries.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks<T>)
    SdpaQueryGradKernel(GpuSdpa f, int64_t pieces, int64_t chunks) {
  using C = Compute<T>;
  using P = Plain<C>;
  P& s = *Shared<P>();
  const SdpaScore<C> score(f);
  const int64_t tiles = (f.queries + kSdpaTile - 1) / kSdpaTile;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t column = piece % chunks * P::kColumns;
    const int64_t first = (tiles - 1 - piece / chunks % tiles) * kSdpaTile;
    const int64_t matrix = piece / chunks / tiles, batch = matrix / f.heads,
                  head = matrix % f.heads, kv_head = head / f.group;
    const TileRows<T> q = RowsOf<T>(f.in.q, batch, head, first, f.queries);
    const TileRows<T> dy = RowsOf<T>(f.grad.dy, batch, head, first, f.queries);
    __syncthreads();  // of the piece before
    LoadQueryStates<kThreads>(f, matrix, first, dy,
                              RowsOf<T>(f.grad.out, batch, head, first, f.queries), s.queries);
    __syncthreads();
    const KeyRange all = KeysOfTile(f, first, q.count);
    Result<C> sum;
    Clear<C>(sum);
    for (int64_t key = all.begin; key < all.end; key += kSdpaTile) {
      const TileRows<T> k = RowsOf<T>(f.in.k, batch, kv_head, key, all.end);
      Scores<C> x, dp;
      MultiplyRows(q, k, f.d, f.aligned, s, x);
      MultiplyRows(dy, RowsOf<T>(f.in.v, batch, kv_head, key, all.end), f.e, f.aligned, s, dp);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const QueryState<C>& query = s.queries[kOwn * Down() + i];
        const SeenKeys seen = SeenIn(query.keys, key);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const int at = Across() + kSide * j;
          s.weights[(kOwn * Down() + i) * P::kWeightPitch + at] =
              GradOf(score, query.lse, query.delta, at >= seen.from && at < seen.to, x[i][j],
                     dp[i][j])
                  .ds;
        }
      }
      AddProduct(k, column, f.d, f.aligned, s, sum);
    }
    const C factor[kOwn] = {score.front, score.front, score.front, score.front};
    StoreResult(sum, factor,
                static_cast<T*>(f.grad.dq) + ((batch * f.queries + first) * f.heads + head) * f.d,
                f.heads * f.d, q.count, column, f.d);
  }
}

// Some columns of dk and dv of a tile of keys: rows of scores are keys, their columns queries.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks<T>)
    SdpaKeyGradKernel(GpuSdpa f, int64_t pieces, int64_t chunks) {
  using C = Compute<T>;
  using P = Plain<C>;
  P& s = *Shared<P>();
  const SdpaScore<C> score(f);
  const int64_t tiles = (f.keys + kSdpaTile - 1) / kSdpaTile;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t column = piece % chunks * P::kColumns;
    // The first tiles first: under a causal mask they are seen by the most.
    const int64_t key = piece / chunks % tiles * kSdpaTile;
    const int64_t matrix = piece / chunks / tiles, batch = matrix / f.kv_heads,
                  kv_head = matrix % f.kv_heads;
    const TileRows<T> k = RowsOf<T>(f.in.k, batch, kv_head, key, f.keys);
    const TileRows<T> v = RowsOf<T>(f.in.v, batch, kv_head, key, f.keys);
    const QueryRange all = QueriesOfTile(f, key, k.count);
    Result<C> dk, dv;
    Clear<C>(dk);
    Clear<C>(dv);
    for (int64_t head = kv_head * f.group; head < (kv_head + 1) * f.group; ++head) {
      for (int64_t first = all.begin; first < all.end; first += kSdpaTile) {
        const TileRows<T> q = RowsOf<T>(f.in.q, batch, head, first, all.end);
        const TileRows<T> dy = RowsOf<T>(f.grad.dy, batch, head, first, all.end);
        __syncthreads();  // of the tile before
        LoadQueryStates<kThreads>(f, batch * f.heads + head, first, dy,
                                  RowsOf<T>(f.grad.out, batch, head, first, all.end), s.queries);
        __syncthreads();
        Scores<C> x, dp;
        MultiplyRows(k, q, f.d, f.aligned, s, x);
        MultiplyRows(v, dy, f.e, f.aligned, s, dp);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
          const QueryState<C>& query = s.queries[Across() + kSide * j];
          const SeenKeys seen = SeenIn(query.keys, key);
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
            const int at = kOwn * Down() + i;
            const PairGrad<C> grad = GradOf(score, query.lse, query.delta,
                                            at >= seen.from && at < seen.to, x[i][j], dp[i][j]);
            s.weights[at * P::kWeightPitch + Across() + kSide * j] = grad.p;
            dp[i][j] = grad.ds;
          }
        }
        AddProduct(dy, column, f.e, f.aligned, s, dv);
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
#pragma unroll
          for (int j = 0; j < kOwn; ++j) {
            s.weights[(kOwn * Down() + i) * P::kWeightPitch + Across() + kSide * j] = dp[i][j];
          }
        }
        AddProduct(q, column, f.d, f.aligned, s, dk);
      }
    }
    const C front[kOwn] = {score.front, score.front, score.front, score.front};
    const C one[kOwn] = {1, 1, 1, 1};
    const int64_t row = (batch * f.keys + key) * f.kv_heads + kv_head;
    StoreResult(dk, front, static_cast<T*>(f.grad.dk) + row * f.d, f.kv_heads * f.d, k.count,
                column, f.d);
    StoreResult(dv, one, static_cast<T*>(f.grad.dv) + row * f.e, f.kv_heads * f.e, k.count, column,
                f.e);
  }
}

}  // namespace

GpuError LaunchSdpaGradPlain(const GpuCall& call, const GpuSdpa& f) {
  return VisitFloat(f.dtype, [&](auto element) -> GpuError {
    using T = decltype(element);
    using C = Compute<T>;
    const int64_t key_chunks = ChunksOf<C>(f.d > f.e ? f.d : f.e), query_chunks = ChunksOf<C>(f.d);
    const int64_t keys = f.batch * f.kv_heads * SdpaTilesOf(f.keys) * key_chunks;
    const int64_t queries = f.batch * f.heads * SdpaTilesOf(f.queries) * query_chunks;
    const GpuError error = Launch(SdpaKeyGradKernel<T>, GridForPieces(keys), kThreads,
                                  sizeof(Plain<C>), call, f, keys, key_chunks);
    if (error != cudaSuccess) return error;
    return Launch(SdpaQueryGradKernel<T>, GridForPieces(queries), kThreads, sizeof(Plain<C>), call,
                  f, queries, query_chunks);
  });
}

GpuError LaunchSdpaDelta(const GpuCall& call, const GpuSdpa& f) {
  return VisitFloat(f.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t rows = f.batch * f.heads * f.queries;
    return Launch(DeltaKernel<T>, GridFor(call, rows * kDeltaLanes), kBlock, 0, call, f);
  });
}

}  // namespace tally::gpu
