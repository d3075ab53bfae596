// Fused attention on tensor cores, forward.
#include "tally/ops/sdpa_tensor.cuh"

namespace tally::gpu {
namespace {

using namespace tensor;  // NOLINT: what both directions are made of

constexpr int64_t kMostDepth = 256;  // of q · kᵀ: shared memory

// Two lanes to a row of scores, each with every other four columns.
struct RowOfLane {
  float top = MinusInfinity<float>();
  float sum = 0;  // of its columns
  KeyRange keys;
};
constexpr int kLaneVectors = kSdpaTile / 8;

// The warp's scores into weights, over the same memory; returns what was summed before is to be
// multiplied by.
template <typename T>
__device__ inline float SoftmaxRows16(const SdpaScore<float>& score, int64_t key, float* scores,
                                      RowOfLane& row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int offset = lane / 2 * kScorePitch + lane % 2 * 4;
  const SeenKeys seen = SeenIn(row.keys, key);
  Vector<float> x[kLaneVectors];
  float top = row.top;
#pragma unroll
  for (int c = 0; c < kLaneVectors; ++c) {
    x[c] = LoadVector(scores + offset + 8 * c);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int at = 8 * c + lane % 2 * 4 + n;
      x[c].v[n] = at >= seen.from && at < seen.to ? score.Of(x[c].v[n]) : MinusInfinity<float>();
      top = fmaxf(top, x[c].v[n]);
    }
  }
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
  const float shift = top == MinusInfinity<float>() ? 0.0f : top;
  const float factor = __expf(row.top - shift);
  row.top = top;
  row.sum *= factor;
  __syncwarp();  // all scores were read
  T* const weights = reinterpret_cast<T*>(scores);
#pragma unroll
  for (int c = 0; c < kLaneVectors; ++c) {
    Vector<T, 4> p;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float e = __expf(x[c].v[n] - shift);
      row.sum += e;
      p.v[n] = Narrow<T>(e);
    }
    StoreVector(weights + offset + 8 * c, p);
  }
  return factor;
}

// A multiprocessor is to hold so many blocks: warps are few, and wait for one another.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads, kN == 4 ? 4 : 3)
    SdpaTensorKernel(GpuSdpa f, int64_t pieces, int64_t chunks) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int d = static_cast<int>(f.d), pitch = d + kPad;
  const int most = kN * kSide;  // columns of v, at a time
  const int v_pitch = most + kPad;
  T* const q = Shared<T>();
  T* const kv = q + kSdpaTile * pitch;
  float* const all_scores =
      reinterpret_cast<float*>(kv + kSdpaTile * (pitch > v_pitch ? pitch : v_pitch));
  float* const scores = all_scores + warp * kWarpScores;
  T* const weights = reinterpret_cast<T*>(scores);
  float* const factors = all_scores + kWarps * kWarpScores + warp * kSide;
  const bool as_f16 = LoadsAsF16(weights);
  const Places places(scores);
  const SdpaScore<float> score(f);
  const int64_t tiles = (f.queries + kSdpaTile - 1) / kSdpaTile;
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t column = piece % chunks * most;
    const int columns = static_cast<int>(f.e - column < most ? f.e - column : most);
    // The last tiles first: under a causal mask they have the most to do.
    const int64_t first = (tiles - 1 - piece / chunks % tiles) * kSdpaTile;
    const int64_t matrix = piece / chunks / tiles, batch = matrix / f.heads,
                  head = matrix % f.heads, kv_head = head / f.group;
    const TileRows<T> rows = RowsOf<T>(f.in.q, batch, head, first, f.queries);
    const KeyRange all = KeysOfTile(f, first, rows.count);
    const int own = warp * kSide + lane / 2;  // row of this lane
    RowOfLane row;
    if (own < rows.count) row.keys = SdpaKeysOf(f, first + own);
    Sum sum[kN];
    Clear(sum);
    LoadRows(rows, 0, d, f.aligned, q, pitch);
    for (int64_t key = all.begin; key < all.end; key += kSdpaTile) {
      LoadRows(RowsOf<T>(f.in.k, batch, kv_head, key, all.end), 0, d, f.aligned, kv, pitch);
      __syncthreads();
      {
        Sum x[kParts];
        MultiplyRows(as_f16, q + warp * kSide * pitch, kv, pitch, d, x);
        for (int n = 0; n < kParts; ++n) {
          wmma::store_matrix_sync(scores + n * kSide, x[n], kScorePitch, wmma::mem_row_major);
        }
      }
      __syncthreads();
      LoadRows(RowsOf<T>(f.in.v, batch, kv_head, key, all.end), column, columns, f.aligned, kv,
               v_pitch);
      const float factor = SoftmaxRows16<T>(score, key, scores, row);
      if (lane % 2 == 0) factors[lane / 2] = factor;
      __syncthreads();
      float by[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) by[i] = factors[places.row(i)];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < kElements; ++i) sum[n].x[i] *= by[i];
      }
      AddProduct(as_f16, weights, kv, v_pitch, columns, sum);
      __syncthreads();
    }
    const bool sees = row.keys.begin < row.keys.end;
    const float total = row.sum + __shfl_xor_sync(0xffffffffu, row.sum, 1);
    if (lane % 2 == 0) {
      factors[lane / 2] = sees ? 1 / total : 0.0f;
      if (column == 0 && own < rows.count) {
        static_cast<float*>(f.lse)[matrix * f.queries + first + own] =
            sees ? row.top + logf(total) : MinusInfinity<float>();
      }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) sum[n].x[i] *= factors[places.row(i)];
    }
    const int64_t at = (batch * f.queries + first + warp * kSide) * f.heads + head;
    StoreRows(sum, 1.0f, scores, static_cast<T*>(f.out) + at * f.e + column, f.heads * f.e,
              rows.count - warp * kSide, columns);
    __syncthreads();  // before q is loaded again
  }
}

}  // namespace

bool SdpaTensorCores(const GpuSdpa& f) { return Sixteens(f) && f.d <= kMostDepth; }

GpuError LaunchSdpaTensor(const GpuCall& call, const GpuSdpa& f) {
  return VisitTensor(f.dtype, f.e, [&](auto element, auto parts) {
    using T = decltype(element);
    constexpr int kN = decltype(parts)::value;
    const int64_t chunks = (f.e + kN * kSide - 1) / (kN * kSide);
    const int64_t pieces = f.batch * f.heads * SdpaTilesOf(f.queries) * chunks;
    const int64_t pitch = f.d + kPad, v_pitch = kN * kSide + kPad;
    const size_t tiles =
        static_cast<size_t>(kSdpaTile * (pitch + (pitch > v_pitch ? pitch : v_pitch))) * sizeof(T);
    return Launch(SdpaTensorKernel<T, kN>, GridForPieces(pieces), kThreads,
                  tiles + (kWarps * kWarpScores + kSdpaTile) * sizeof(float), call, f, pieces,
                  chunks);
  });
}

}  // namespace tally::gpu
