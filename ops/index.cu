#include "tally/ops/index.cuh"

namespace tally::gpu {
namespace {

constexpr int kScanBlock = 1024;
constexpr int kWarpsPerUnit = 16;  // of the walk, per multiprocessor

__global__ void ClearKernel(int64_t* begin, int64_t n) {
  for (int64_t i = GlobalThread(); i < n; i += GlobalThreads()) begin[i] = 0;
}

__global__ void CountKernel(GpuCall call, GpuIds ids, int64_t rows, int64_t* begin) {
  for (int64_t i = GlobalThread(); i < ids.count; i += GlobalThreads()) {
    const int64_t id = ids[i];
    if (!InRange(call.fault, ids.operand, id, rows)) continue;
    atomicAdd(reinterpret_cast<unsigned long long*>(begin + id), 1ull);
  }
}

// begin[r] becomes the sum up to and with r. One block; each thread takes neighbours.
__global__ void ScanKernel(int64_t* begin, int64_t n) {
  int64_t* const sums = Shared<int64_t>();
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int64_t each = (n + threads - 1) / threads;
  const int64_t first = t * each < n ? t * each : n;
  const int64_t last = first + each < n ? first + each : n;
  int64_t sum = 0;
  for (int64_t r = first; r < last; ++r) sum += begin[r];
  sums[t] = sum;
  __syncthreads();
  for (int step = 1; step < threads; step *= 2) {
    const int64_t before = t >= step ? sums[t - step] : 0;
    __syncthreads();
    sums[t] += before;
    __syncthreads();
  }
  sum = t > 0 ? sums[t - 1] : 0;
  for (int64_t r = first; r < last; ++r) begin[r] = sum += begin[r];
}

// From the back: begin[r] is the end of the part of row r that has no positions yet.
__global__ void PlaceKernel(GpuIds ids, int64_t rows, int64_t parts, int64_t* begin, int64_t* order,
                            int64_t* quotients, int64_t part_size) {
  constexpr int kAhead = 4;  // loads in flight
  const int64_t part = GlobalThread() / kWarp;
  if (part >= parts) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t row = -1, end = 0;  // the row met last, and its end: the same in all lanes
  const int64_t tiles = (ids.count + kAhead * kWarp - 1) / (kAhead * kWarp);
  for (int64_t tile = tiles - 1; tile >= 0; --tile) {
    const int64_t first = tile * kAhead * kWarp + lane;
    int64_t id[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      id[a] = first + a * kWarp < ids.count ? ids[first + a * kWarp] : -1;
      if (id[a] >= rows) id[a] = -1;
    }
#pragma unroll
    for (int a = kAhead - 1; a >= 0; --a) {
      const bool mine = id[a] >= 0 && PartOf(id[a], parts) == part;
      unsigned left = __ballot_sync(kAllLanes, mine);
      while (left != 0) {
        const int64_t next = __shfl_sync(kAllLanes, id[a], __ffs(static_cast<int>(left)) - 1);
        const unsigned same = __ballot_sync(kAllLanes, mine && id[a] == next);
        if (next != row) {
          if (lane == 0) {  // one thread alone keeps the ends in memory
            if (row >= 0) begin[row] = end;
            end = begin[next];
          }
          end = __shfl_sync(kAllLanes, end, 0);
          row = next;
        }
        if ((same >> lane & 1u) != 0) {
          const int64_t at = end - __popc(same >> lane), i = first + a * kWarp;
          order[at] = i;
          if (quotients != nullptr) quotients[at] = i / part_size;
        }
        end -= __popc(same);
        left &= ~same;
      }
    }
  }
  if (lane == 0 && row >= 0) begin[row] = end;
}

}  // namespace
}  // namespace tally::gpu

namespace tally::internal {

GpuError LaunchRowSort(const GpuCall& call, const GpuIds& ids, int64_t rows, int64_t* begin,
                       int64_t* order, int64_t* parts, int64_t part_size) {
  using namespace gpu;  // NOLINT: what kernels are made of
  GpuError error = Launch(ClearKernel, GridFor(call, rows + 1), kBlock, 0, call, begin, rows + 1);
  if (error != cudaSuccess || ids.count == 0) return error;
  error = Launch(CountKernel, GridFor(call, ids.count), kBlock, 0, call, call, ids, rows, begin);
  if (error != cudaSuccess) return error;
  error = Launch(ScanKernel, 1, kScanBlock, kScanBlock * sizeof(int64_t), call, begin, rows + 1);
  if (error != cudaSuccess) return error;
  const int64_t classes = PartsFor(rows, int64_t{call.multiprocessors} * kWarpsPerUnit);
  const auto blocks = static_cast<unsigned>((classes * kWarp + kBlock - 1) / kBlock);
  return Launch(PlaceKernel, blocks, kBlock, 0, call, ids, rows, classes, begin, order, parts,
                part_size);
}

}  // namespace tally::internal
