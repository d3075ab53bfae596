// Fused attention on tensor cores, backward.
#include "tally/ops/sdpa_tensor.cuh"

namespace tally::gpu {
namespace {

using namespace tensor;  // NOLINT: what both directions are made of

// Shared memory of both gradients.
template <typename T>
struct GradTiles {
  int d, e, d_pitch, e_pitch;
  T *q, *k, *dy, *v;
  float* buffer;  // of the warp: weights, or rows of a result
  QueryState<float>* states;
  SeenKeys* seen;

  __device__ explicit GradTiles(const GpuSdpa& f)
      : d(static_cast<int>(f.d)),
        e(static_cast<int>(f.e)),
        d_pitch(d + kPad),
        e_pitch(e + kPad),
        q(Shared<T>()),
        k(q + kSdpaTile * d_pitch),
        dy(k + kSdpaTile * d_pitch),
        v(dy + kSdpaTile * e_pitch) {
    float* const buffers = reinterpret_cast<float*>(v + kSdpaTile * e_pitch);
    buffer = buffers + threadIdx.x / kWarp * kWarpScores;
    states = reinterpret_cast<QueryState<float>*>(buffers + kWarps * kWarpScores);
    seen = reinterpret_cast<SeenKeys*>(states + kSdpaTile);
  }
  static size_t Bytes(const GpuSdpa& f) {
    return static_cast<size_t>(2 * kSdpaTile * (f.d + f.e + 2 * kPad)) * sizeof(T) +
           kWarps * kWarpScores * sizeof(float) +
           kSdpaTile * (sizeof(QueryState<float>) + sizeof(SeenKeys));
  }
};

// dk and dv of a tile of keys: rows of scores are keys, their columns queries.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) SdpaKeyGradTensorKernel(GpuSdpa f, int64_t pieces) {
  const GradTiles<T> s(f);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T* const p = reinterpret_cast<T*>(s.buffer);
  T* const ds = p + kWarpScores;
  const bool as_f16 = LoadsAsF16(p);
  const Places places(s.buffer);
  const SdpaScore<float> score(f);
  const int64_t tiles = (f.keys + kSdpaTile - 1) / kSdpaTile;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    // The first tiles first: under a causal mask they are seen by the most.
    const int64_t key = piece % tiles * kSdpaTile;
    const int64_t matrix = piece / tiles, batch = matrix / f.kv_heads,
                  kv_head = matrix % f.kv_heads;
    const TileRows<T> k = RowsOf<T>(f.in.k, batch, kv_head, key, f.keys);
    const QueryRange all = QueriesOfTile(f, key, k.count);
    Sum dk[kN], dv[kN];
    Clear(dk);
    Clear(dv);
    LoadRows(k, 0, s.d, f.aligned, s.k, s.d_pitch);
    LoadRows(RowsOf<T>(f.in.v, batch, kv_head, key, f.keys), 0, s.e, f.aligned, s.v, s.e_pitch);
    for (int64_t head = kv_head * f.group; head < (kv_head + 1) * f.group; ++head) {
      for (int64_t first = all.begin; first < all.end; first += kSdpaTile) {
        const TileRows<T> dy = RowsOf<T>(f.grad.dy, batch, head, first, all.end);
        LoadQueryStates<kThreads>(f, batch * f.heads + head, first, dy,
                                  RowsOf<T>(f.grad.out, batch, head, first, all.end), s.states, key,
                                  s.seen);
        LoadRows(RowsOf<T>(f.in.q, batch, head, first, all.end), 0, s.d, f.aligned, s.q, s.d_pitch);
        LoadRows(dy, 0, s.e, f.aligned, s.dy, s.e_pitch);
        __syncthreads();
        for (int n = 0; n < kParts; n += 2) {
          __syncwarp();  // fragments are the whole warp's, and pairs part ways
          Sum x[2], dp[2];
          MultiplyRows(as_f16, s.k + warp * kSide * s.d_pitch, s.q + n * kSide * s.d_pitch,
                       s.d_pitch, s.d, x);
          MultiplyRows(as_f16, s.v + warp * kSide * s.e_pitch, s.dy + n * kSide * s.e_pitch,
                       s.e_pitch, s.e, dp);
#pragma unroll
          for (int part = 0; part < 2; ++part) {
#pragma unroll
            for (int i = 0; i < kElements; ++i) {
              const int query = (n + part) * kSide + places.column(i);
              const int at = warp * kSide + places.row(i);
              const SeenKeys seen = s.seen[query];
              const PairGrad<float> grad =
                  GradOf<true>(score, s.states[query].lse, s.states[query].delta,
                               at >= seen.from && at < seen.to, x[part].x[i], dp[part].x[i]);
              p[places.row(i) * kScorePitch + query] = Narrow<T>(grad.p);
              ds[places.row(i) * kScorePitch + query] = Narrow<T>(grad.ds);
            }
          }
        }
        __syncwarp();
        AddProduct(as_f16, p, s.dy, s.e_pitch, s.e, dv);
        AddProduct(as_f16, ds, s.q, s.d_pitch, s.d, dk);
        __syncthreads();
      }
    }
    const int64_t row = (batch * f.keys + key + warp * kSide) * f.kv_heads + kv_head;
    const int rows = k.count - warp * kSide;
    StoreRows(dk, score.front, s.buffer, static_cast<T*>(f.grad.dk) + row * f.d, f.kv_heads * f.d,
              rows, s.d);
    StoreRows(dv, 1.0f, s.buffer, static_cast<T*>(f.grad.dv) + row * f.e, f.kv_heads * f.e, rows,
              s.e);
  }
}

// dq of a tile of queries.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) SdpaQueryGradTensorKernel(GpuSdpa f, int64_t pieces) {
  const GradTiles<T> s(f);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  T* const ds = reinterpret_cast<T*>(s.buffer);
  const bool as_f16 = LoadsAsF16(ds);
  const Places places(s.buffer);
  const SdpaScore<float> score(f);
  const int64_t tiles = (f.queries + kSdpaTile - 1) / kSdpaTile;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t first = (tiles - 1 - piece % tiles) * kSdpaTile;
    const int64_t matrix = piece / tiles, batch = matrix / f.heads, head = matrix % f.heads,
                  kv_head = head / f.group;
    const TileRows<T> q = RowsOf<T>(f.in.q, batch, head, first, f.queries);
    const TileRows<T> dy = RowsOf<T>(f.grad.dy, batch, head, first, f.queries);
    const KeyRange all = KeysOfTile(f, first, q.count);
    Sum dq[kN];
    Clear(dq);
    LoadQueryStates<kThreads>(f, matrix, first, dy,
                              RowsOf<T>(f.grad.out, batch, head, first, f.queries), s.states);
    LoadRows(q, 0, s.d, f.aligned, s.q, s.d_pitch);
    LoadRows(dy, 0, s.e, f.aligned, s.dy, s.e_pitch);
    __syncthreads();
    for (int64_t key = all.begin; key < all.end; key += kSdpaTile) {
      if (threadIdx.x < kSdpaTile) s.seen[threadIdx.x] = SeenIn(s.states[threadIdx.x].keys, key);
      LoadRows(RowsOf<T>(f.in.k, batch, kv_head, key, all.end), 0, s.d, f.aligned, s.k, s.d_pitch);
      LoadRows(RowsOf<T>(f.in.v, batch, kv_head, key, all.end), 0, s.e, f.aligned, s.v, s.e_pitch);
      __syncthreads();
      for (int n = 0; n < kParts; n += 2) {
        __syncwarp();  // fragments are the whole warp's, and pairs part ways
        Sum x[2], dp[2];
        MultiplyRows(as_f16, s.q + warp * kSide * s.d_pitch, s.k + n * kSide * s.d_pitch, s.d_pitch,
                     s.d, x);
        MultiplyRows(as_f16, s.dy + warp * kSide * s.e_pitch, s.v + n * kSide * s.e_pitch,
                     s.e_pitch, s.e, dp);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
#pragma unroll
          for (int i = 0; i < kElements; ++i) {
            const int query = warp * kSide + places.row(i);
            const int at = (n + part) * kSide + places.column(i);
            const SeenKeys seen = s.seen[query];
            const PairGrad<float> grad =
                GradOf<true>(score, s.states[query].lse, s.states[query].delta,
                             at >= seen.from && at < seen.to, x[part].x[i], dp[part].x[i]);
            ds[places.row(i) * kScorePitch + at] = Narrow<T>(grad.ds);
          }
        }
      }
      __syncwarp();
      AddProduct(as_f16, ds, s.k, s.d_pitch, s.d, dq);
      __syncthreads();
    }
    const int64_t row = (batch * f.queries + first + warp * kSide) * f.heads + head;
    StoreRows(dq, score.front, s.buffer, static_cast<T*>(f.grad.dq) + row * f.d, f.heads * f.d,
              q.count - warp * kSide, s.d);
    __syncthreads();  // before q is loaded again
  }
}

}  // namespace

bool SdpaGradTensorCores(const GpuSdpa& f) {
  return Sixteens(f) && f.d <= kMostColumns && f.e <= kMostColumns;
}

GpuError LaunchSdpaGradTensor(const GpuCall& call, const GpuSdpa& f) {
  return VisitTensor(f.dtype, f.d > f.e ? f.d : f.e, [&](auto element, auto parts) -> GpuError {
    using T = decltype(element);
    constexpr int kN = decltype(parts)::value;
    const int64_t keys = f.batch * f.kv_heads * SdpaTilesOf(f.keys);
    const int64_t queries = f.batch * f.heads * SdpaTilesOf(f.queries);
    const size_t bytes = GradTiles<T>::Bytes(f);
    const GpuError error =
        Launch(SdpaKeyGradTensorKernel<T, kN>, GridForPieces(keys), kThreads, bytes, call, f, keys);
    if (error != cudaSuccess) return error;
    return Launch(SdpaQueryGradTensorKernel<T, kN>, GridForPieces(queries), kThreads, bytes, call,
                  f, queries);
  });
}

}  // namespace tally::gpu
