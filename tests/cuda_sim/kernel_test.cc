// The machine itself: indices, barriers, warp functions, atomics, shared memory, arithmetic.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim_test.h"

namespace tally_sim {
namespace {

using KernelTest = SimTest;

__global__ void WriteIndex(int* out, int n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < static_cast<unsigned>(n)) out[i] = static_cast<int>(i);
}

TEST_F(KernelTest, EveryThreadRunsOnce) {
  int* out = DeviceArray<int>(1000);
  ASSERT_EQ(RunNow(&WriteIndex, 8, 128, 0, out, 1000), cudaSuccess);
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(HostArray(out, 1000), expected);
  EXPECT_EQ(GetCounters().kernels, 1);
  EXPECT_EQ(GetCounters().threads, 8 * 128);
}

__global__ void WriteIndices3(uint3* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = threadIdx;
}

TEST_F(KernelTest, IndicesInThreeDimensions) {
  const dim3 grid(2, 3, 4), block(5, 2, 3);
  uint3* out = DeviceArray<uint3>(24 * 30);
  ASSERT_EQ(RunNow(&WriteIndices3, grid, block, 0, out), cudaSuccess);
  const auto indices = HostArray(out, 24 * 30);
  size_t i = 0;
  for (int b = 0; b < 24; ++b) {
    for (unsigned z = 0; z < 3; ++z) {
      for (unsigned y = 0; y < 2; ++y) {
        for (unsigned x = 0; x < 5; ++x, ++i) {
          EXPECT_EQ(indices[i].x, x);
          EXPECT_EQ(indices[i].y, y);
          EXPECT_EQ(indices[i].z, z);
        }
      }
    }
  }
}

__global__ void AppendOrder(int* order, unsigned* count) {
  order[atomicAdd(count, 1u)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST_F(KernelTest, OrderFollowsTheSeed) {
  const auto order_with = [&](uint64_t seed) {
    SetSeed(seed);
    int* order = DeviceArray<int>(64);
    unsigned* count = DeviceArray(std::vector<unsigned>{0});
    EXPECT_EQ(RunNow(&AppendOrder, 4, 16, 0, order, count), cudaSuccess);
    return HostArray(order, 64);
  };
  const std::vector<int> first = order_with(1);
  EXPECT_EQ(order_with(1), first);
  EXPECT_NE(order_with(2), first);
  std::vector<int> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
}

// A block's sum, the tree in shared memory.
__global__ void BlockSum(const float* in, float* out) {
  auto* partial = reinterpret_cast<float*>(SharedMemory());
  const unsigned t = threadIdx.x;
  partial[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (t < half) partial[t] += partial[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = partial[0];
}

TEST_F(KernelTest, BarriersOrderSharedMemory) {
  std::vector<float> in(3 * 256);
  std::iota(in.begin(), in.end(), 0.0f);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SetSeed(seed);
    float* d = DeviceArray(in);
    float* out = DeviceArray<float>(3);
    ASSERT_EQ(RunNow(&BlockSum, 3, 256, 256 * sizeof(float), d, out), cudaSuccess);
    // 0 + ... + 255 = 32640; the next blocks have 256·256 and twice that more.
    EXPECT_EQ(HostArray(out, 3), (std::vector<float>{32640, 32640 + 65536, 32640 + 131072}));
  }
  EXPECT_TRUE(Clean()) << Reports();
}

__global__ void Shuffles(int* idx, float* xored, double* down, long long* up, int* narrow) {
  const int lane = static_cast<int>(threadIdx.x);
  idx[lane] = __shfl_sync(0xffffffffu, lane * 10, (lane + 5) % 32);
  xored[lane] = __shfl_xor_sync(0xffffffffu, static_cast<float>(lane), 3);
  down[lane] = __shfl_down_sync(0xffffffffu, static_cast<double>(lane), 4);
  up[lane] = __shfl_up_sync(0xffffffffu, static_cast<long long>(lane), 4);
  narrow[lane] = __shfl_down_sync(0xffffffffu, lane, 1, 8);
}

TEST_F(KernelTest, ShufflesMoveValuesBetweenLanes) {
  int* idx = DeviceArray<int>(32);
  auto* xored = DeviceArray<float>(32);
  auto* down = DeviceArray<double>(32);
  auto* up = DeviceArray<long long>(32);
  int* narrow = DeviceArray<int>(32);
  ASSERT_EQ(RunNow(&Shuffles, 1, 32, 0, idx, xored, down, up, narrow), cudaSuccess);
  for (int lane = 0; lane < 32; ++lane) {
    const auto i = static_cast<size_t>(lane);
    EXPECT_EQ(HostArray(idx, 32)[i], (lane + 5) % 32 * 10);
    EXPECT_EQ(HostArray(xored, 32)[i], static_cast<float>(lane ^ 3));
    EXPECT_EQ(HostArray(down, 32)[i], lane < 28 ? lane + 4 : lane);
    EXPECT_EQ(HostArray(up, 32)[i], lane >= 4 ? lane - 4 : lane);
    EXPECT_EQ(HostArray(narrow, 32)[i], lane % 8 == 7 ? lane : lane + 1);
  }
}

// Halves of a warp on their own, and votes.
__global__ void Votes(unsigned* ballot, int* any_all, int* half_sum) {
  const unsigned lane = threadIdx.x;
  ballot[lane] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  any_all[lane] = __any_sync(0xffffffffu, lane == 7) + 2 * __all_sync(0xffffffffu, lane < 32) +
                  4 * __any_sync(0xffffffffu, 0) + 8 * __all_sync(0xffffffffu, lane != 7);
  if (lane < 16) {
    int sum = static_cast<int>(lane);
    for (int mask = 8; mask > 0; mask /= 2) sum += __shfl_xor_sync(0x0000ffffu, sum, mask);
    half_sum[lane] = sum;
  } else {
    half_sum[lane] = __shfl_sync(0xffff0000u, static_cast<int>(lane), 20);
  }
}

TEST_F(KernelTest, VotesAndPartsOfAWarp) {
  auto* ballot = DeviceArray<unsigned>(32);
  int* any_all = DeviceArray<int>(32);
  int* half_sum = DeviceArray<int>(32);
  ASSERT_EQ(RunNow(&Votes, 1, 32, 0, ballot, any_all, half_sum), cudaSuccess) << Reports();
  unsigned multiples_of_3 = 0;
  for (int i = 0; i < 32; i += 3) multiples_of_3 |= 1u << i;
  for (size_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(HostArray(ballot, 32)[lane], multiples_of_3);
    EXPECT_EQ(HostArray(any_all, 32)[lane], 1 + 2);
    EXPECT_EQ(HostArray(half_sum, 32)[lane], lane < 16 ? 120 : 20);  // 0 + ... + 15
  }
}

// A block smaller than a warp may name all lanes, as long as it reads none that it does not have.
__global__ void SmallBlock(int* out) {
  int sum = 1;
  for (int mask = 8; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  out[threadIdx.x] = sum;
}

TEST_F(KernelTest, BlockSmallerThanAWarp) {
  int* out = DeviceArray<int>(16);
  ASSERT_EQ(RunNow(&SmallBlock, 1, 16, 0, out), cudaSuccess) << Reports();
  EXPECT_EQ(HostArray(out, 16), std::vector<int>(16, 16));
}

__global__ void Atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  const int t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&i[0], t);
  atomicMax(&i[1], t);
  atomicMin(&i[2], -t);
  atomicAdd(&u[0], 2u);
  unsigned old = u[1], assumed;
  do {
    assumed = old;
    old = atomicCAS(&u[1], assumed, assumed + 3);
  } while (old != assumed);
  atomicAdd(l, 1ull << 32);
  atomicMax(l + 1, static_cast<unsigned long long>(t) << 33);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
}

TEST_F(KernelTest, Atomics) {
  int* i = DeviceArray(std::vector<int>{0, 0, 0});
  auto* u = DeviceArray(std::vector<unsigned>{0, 0});
  auto* l = DeviceArray(std::vector<unsigned long long>{0, 0});
  auto* f = DeviceArray(std::vector<float>{0});
  auto* d = DeviceArray(std::vector<double>{0});
  ASSERT_EQ(RunNow(&Atomics, 4, 50, 0, i, u, l, f, d), cudaSuccess);
  EXPECT_EQ(HostArray(i, 3), (std::vector<int>{199 * 200 / 2, 199, -199}));
  EXPECT_EQ(HostArray(u, 2), (std::vector<unsigned>{400, 600}));
  EXPECT_EQ(HostArray(l, 2), (std::vector<unsigned long long>{200ull << 32, 199ull << 33}));
  EXPECT_EQ(HostArray(f, 1)[0], 100.0f);
  EXPECT_EQ(HostArray(d, 1)[0], 50.0);
}

__global__ void Vectors(const float4* in, float4* out) {
  CheckAligned(in + threadIdx.x, sizeof(float4));
  const float4 v = in[threadIdx.x];
  out[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x);
}

TEST_F(KernelTest, VectorsOverFloats) {
  std::vector<float> in(64);
  std::iota(in.begin(), in.end(), 0.0f);
  float* d = DeviceArray(in);
  float* out = DeviceArray<float>(64);
  ASSERT_EQ(RunNow(&Vectors, 1, 16, 0, reinterpret_cast<const float4*>(d),
                   reinterpret_cast<float4*>(out)),
            cudaSuccess);
  for (size_t i = 0; i < 64; ++i)
    EXPECT_EQ(HostArray(out, 64)[i], static_cast<float>(i / 4 * 4 + 3 - i % 4));
}

TEST(DeviceMath, Bits) {
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__brev(1u), 0x80000000u);
  EXPECT_EQ(__brevll(2), 1ull << 62);
  EXPECT_EQ(__umulhi(0xffffffffu, 0xffffffffu), 0xfffffffeu);
  EXPECT_EQ(__umul64hi(1ull << 63, 6), 3u);
  EXPECT_EQ(__funnelshift_l(0x80000000u, 1, 1), 3u);
  EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
  EXPECT_EQ(__float2int_rz(-1.9f), -1);
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rz(NAN), 0);
  EXPECT_EQ(__float2uint_rz(-3.0f), 0u);
}

TEST(DeviceMath, Functions) {
  EXPECT_FLOAT_EQ(__expf(1.0f), 2.7182818f);
  EXPECT_FLOAT_EQ(__logf(10.0f), 2.3025851f);
  EXPECT_FLOAT_EQ(rsqrtf(4.0f), 0.5f);
  EXPECT_FLOAT_EQ(__powf(2.0f, 10.0f), 1024.0f);
  EXPECT_FLOAT_EQ(sinpif(0.5f), 1.0f);
  EXPECT_FLOAT_EQ(normcdff(0.0f), 0.5f);
  EXPECT_EQ(max(1.0f, NAN), 1.0f);
  EXPECT_EQ(min(-1, 2), -1);
  EXPECT_EQ(__saturatef(NAN), 0.0f);
}

}  // namespace
}  // namespace tally_sim
