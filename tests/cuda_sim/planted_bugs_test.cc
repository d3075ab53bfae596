// Bugs planted in kernels: each is found with words that tell what it is, and its correct twin runs
// without a report.

#include <cmath>

#include "sim_test.h"

namespace tally_sim {
namespace {

using testing::HasSubstr;

class PlantedBugs : public SimTest {};

constexpr size_t kN = 256;  // floats: 1024 bytes, so that the end is the guard page

__global__ void Fill(float* out, int first, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[first + i] = 1;
}

__global__ void SumAll(const float* in, float* out, int first, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += in[first + i];
  *out = sum;
}

TEST_F(PlantedBugs, WritePastTheEnd) {
  float* out = DeviceArray<float>(kN);
  EXPECT_EQ(RunNow(&Fill, 3, 100, 0, out, 0, 256), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&Fill, 3, 100, 0, out, 0, 257), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("out of bounds write 0 bytes past the end of allocation"));
  EXPECT_THAT(Reports(), HasSubstr("(1024 bytes) in kernel"));
  EXPECT_THAT(Reports(), HasSubstr("Fill<<<(3,1,1),(100,1,1)>>>, block (2,0,0), thread (56,0,0)"));
}

TEST_F(PlantedBugs, ReadPastTheEnd) {
  float* in = DeviceArray(std::vector<float>(kN, 1));
  float* out = DeviceArray<float>(1);
  EXPECT_EQ(RunNow(&SumAll, 1, 1, 0, in, out, 0, 256), cudaSuccess);
  EXPECT_EQ(HostArray(out, 1)[0], 256.0f);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&SumAll, 1, 1, 0, in, out, 0, 257), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("out of bounds read 0 bytes past the end of allocation"));
}

TEST_F(PlantedBugs, AccessBeforeTheStart) {
  DeviceArray<float>(kN);
  float* whole_page = DeviceArray<float>(1024);  // begins right after a guard page
  float* out = DeviceArray<float>(1);
  EXPECT_EQ(RunNow(&SumAll, 1, 1, 0, whole_page, out, -1, 4), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("out of bounds read 4 bytes before the start of allocation"));
  EXPECT_THAT(Reports(), HasSubstr("(4096 bytes)"));
}

// Where no guard page is near enough, a canary is.
TEST_F(PlantedBugs, WriteIntoTheSlack) {
  float* out = DeviceArray<float>(10);
  EXPECT_EQ(RunNow(&Fill, 1, 32, 0, out, 0, 10), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&Fill, 1, 32, 0, out, 0, 11), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("something wrote right after the end of allocation"));
  EXPECT_THAT(Reports(), HasSubstr("(40 bytes) in kernel"));
  StartAgain();
  out = DeviceArray<float>(10);
  EXPECT_EQ(RunNow(&Fill, 1, 32, 0, out, -2, 10), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("something wrote 8 bytes before the start of allocation"));
}

__global__ void FillShared(float* out, int n) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  for (int i = 0; i < n; ++i) shared[i] = 1;
  *out = shared[n - 1];
}

TEST_F(PlantedBugs, OutOfSharedMemory) {
  float* out = DeviceArray<float>(1);
  EXPECT_EQ(RunNow(&FillShared, 2, 1, 64, out, 16), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&FillShared, 2, 1, 64, out, 17), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("access 0 bytes past the end of shared memory (64 bytes)"));
  StartAgain();  // 36 bytes: the 17th float is beyond, the 10th within the last 32 bytes
  out = DeviceArray<float>(1);
  EXPECT_EQ(RunNow(&FillShared, 2, 1, 36, out, 10), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("write 0 bytes past the end of shared memory (36 bytes)"));
}

__global__ void ReadShared(float* out) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  if (blockIdx.x % 2 == 0) shared[0] = 1;
  out[blockIdx.x] = shared[0];
}

TEST_F(PlantedBugs, UninitialisedMemory) {
  float* in = DeviceArray<float>(kN);
  float* out = DeviceArray<float>(1);
  EXPECT_EQ(RunNow(&SumAll, 1, 1, 0, in, out, 0, 256), cudaSuccess);
  EXPECT_TRUE(std::isnan(HostArray(out, 1)[0]));
  EXPECT_EQ(RunNow(&Fill, 1, 256, 0, in, 0, 256), cudaSuccess);
  EXPECT_EQ(RunNow(&SumAll, 1, 1, 0, in, out, 0, 256), cudaSuccess);
  EXPECT_EQ(HostArray(out, 1)[0], 256.0f);
  // Nor does shared memory hold what another block left.
  float* of_blocks = DeviceArray<float>(6);
  EXPECT_EQ(RunNow(&ReadShared, 6, 1, 4, of_blocks), cudaSuccess);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(HostArray(of_blocks, 6)[i]), i % 2 == 1);
  EXPECT_EQ(HostArray(DeviceArray<int>(1), 1)[0], -1);
}

// `barriers` says which of the two there are: after the store, and in the loop.
__global__ void BlockSum(float* out, int barriers) {
  auto* partial = reinterpret_cast<float*>(SharedMemory());
  partial[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barriers & 1) __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    if (barriers & 2) __syncthreads();
  }
  if (threadIdx.x == 0) *out = partial[0];
}

TEST_F(PlantedBugs, MissingBarrier) {
  const auto wrong_seeds = [&](int barriers) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SetSeed(seed);
      float* out = DeviceArray<float>(1);
      EXPECT_EQ(RunNow(&BlockSum, 1, 64, 64 * sizeof(float), out, barriers), cudaSuccess);
      wrong += HostArray(out, 1)[0] != 2016.0f;  // 0 + ... + 63
    }
    return wrong;
  };
  EXPECT_EQ(wrong_seeds(3), 0);
  EXPECT_EQ(wrong_seeds(2), 4);
  EXPECT_EQ(wrong_seeds(1), 4);
  EXPECT_TRUE(Clean()) << Reports();
}

__global__ void EarlyReturn(int* out, int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

TEST_F(PlantedBugs, BarrierAfterAnEarlyReturn) {
  int* out = DeviceArray<int>(64);
  EXPECT_EQ(RunNow(&EarlyReturn, 1, 64, 0, out, 64), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&EarlyReturn, 1, 64, 0, out, 40), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("divergent barrier: of 64 threads 24 have ended, 40 in "
                                   "__syncthreads at planted_bugs_test.cc:"));
}

__global__ void TwoSites(int split) {
  if (static_cast<int>(threadIdx.x) < split) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(PlantedBugs, BarriersAtDifferentPlaces) {
  EXPECT_EQ(RunNow(&TwoSites, 1, 64, 0, 64), cudaSuccess);
  EXPECT_EQ(RunNow(&TwoSites, 1, 64, 0, 0), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&TwoSites, 1, 64, 0, 16), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("divergent barrier: of 64 threads 16 in __syncthreads at"));
  EXPECT_THAT(Reports(), HasSubstr(", 48 in __syncthreads at"));
}

__global__ void WarpSum(int* out, int n, unsigned mask) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  int sum = 1;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(mask, sum, step);
  out[threadIdx.x] = sum;
}

TEST_F(PlantedBugs, LaneMissingInAShuffle) {
  int* out = DeviceArray<int>(64);
  EXPECT_EQ(RunNow(&WarpSum, 1, 64, 0, out, 64, 0xffffffffu), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&WarpSum, 1, 64, 0, out, 63, 0xffffffffu), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("divergent warp: 1 of the lanes in mask 0xffffffff missing in "
                                   "__shfl_xor_sync at planted_bugs_test.cc:"));
  EXPECT_THAT(Reports(), HasSubstr("of warp 1 waits: of the missing, lane 31 has ended"));
  // A lane outside its own mask, and one that reads a lane outside it.
  StartAgain();
  out = DeviceArray<int>(64);
  EXPECT_EQ(RunNow(&WarpSum, 1, 32, 0, out, 32, 0x7fffffffu), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("with mask 0x7fffffff, which does not name it"));
  StartAgain();
  out = DeviceArray<int>(64);
  EXPECT_EQ(RunNow(&WarpSum, 1, 32, 0, out, 16, 0x0000ffffu), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("reads lane"));
  EXPECT_THAT(Reports(), HasSubstr("which takes no part"));
}

__global__ void WarpWithinBranch(int* out) {
  const unsigned lane = threadIdx.x % 32;
  int value = 0;
  if (lane < 16) {
    value = __shfl_sync(0xffffffffu, 1, 0);
  } else {
    value = __shfl_sync(0xffffffffu, 2, 0);
  }
  out[threadIdx.x] = value;
}

TEST_F(PlantedBugs, LanesInDifferentShuffles) {
  int* out = DeviceArray<int>(32);
  EXPECT_EQ(RunNow(&WarpWithinBranch, 1, 32, 0, out), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("divergent warp: lane"));
}

__global__ void CopyVectors(const float* in, float* out, int first) {
  const float* from = in + first + 4 * threadIdx.x;
  CheckAligned(from, sizeof(float4));
  *reinterpret_cast<float4*>(out + 4 * threadIdx.x) = *reinterpret_cast<const float4*>(from);
}

TEST_F(PlantedBugs, MisalignedVector) {
  float* in = DeviceArray(std::vector<float>(kN, 1));
  float* out = DeviceArray<float>(kN);
  EXPECT_EQ(RunNow(&CopyVectors, 1, 16, 0, in, out, 4), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&CopyVectors, 1, 16, 0, in, out, 1), cudaErrorMisalignedAddress);
  EXPECT_THAT(Reports(),
              HasSubstr("misaligned vector access of 16 bytes at planted_bugs_test.cc:"));
}

TEST_F(PlantedBugs, FreedMemory) {
  float* out = DeviceArray<float>(kN);
  ASSERT_EQ(Launch(&Fill, 1, 256, 0, nullptr, out, 0, 256), cudaSuccess);
  ASSERT_EQ(cudaFree(out), cudaSuccess);  // waits for the kernel
  EXPECT_TRUE(Clean()) << Reports();
  float* other = DeviceArray<float>(kN);
  EXPECT_NE(other, out);
  EXPECT_EQ(RunNow(&Fill, 1, 256, 0, out, 0, 256), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("write of freed allocation"));
  EXPECT_THAT(Reports(), HasSubstr("(1024 bytes) in kernel"));
}

TEST_F(PlantedBugs, FreeThatNothingWaitedFor) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (const bool waits : {true, false}) {
    float* out = DeviceArray<float>(kN);
    ASSERT_EQ(Launch(&Fill, 1, 256, 0, stream, out, 0, 256), cudaSuccess);
    if (waits) {
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    EXPECT_EQ(cudaFree(out), cudaSuccess);
    EXPECT_EQ(Clean(), waits) << Reports();
  }
  EXPECT_THAT(Reports(), HasSubstr("cudaFree while a stream that does not block has work left"));
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

__global__ void Recurse(int* out, int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  if (depth > 0) Recurse(out, depth - 1);
  *out = frame[0];
}

TEST_F(PlantedBugs, DeepRecursion) {
  int* out = DeviceArray<int>(1);
  EXPECT_EQ(RunNow(&Recurse, 1, 1, 0, out, 4), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(RunNow(&Recurse, 1, 1, 0, out, 100), cudaErrorLaunchFailure);
  EXPECT_THAT(Reports(), HasSubstr("stack overflow of a thread"));
}

TEST_F(PlantedBugs, NullAndHostPointers) {
  EXPECT_EQ(RunNow(&Fill, 1, 1, 0, static_cast<float*>(nullptr), 0, 1), cudaErrorIllegalAddress);
  EXPECT_THAT(Reports(), HasSubstr("access of a null pointer"));
  StartAgain();
  float on_host = 0;
  RunNow(&Fill, 1, 1, 0, &on_host, 0, 1);
  EXPECT_THAT(Reports(), HasSubstr("argument 0 of kernel"));
  EXPECT_THAT(Reports(), HasSubstr("points to host memory"));
}

// After a fault the machine works as before.
TEST_F(PlantedBugs, LifeGoesOn) {
  for (int round = 0; round < 3; ++round) {
    float* out = DeviceArray<float>(kN);
    EXPECT_EQ(RunNow(&Fill, 2, 200, 0, out, 0, 400), cudaErrorIllegalAddress);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress) << "the error sticks";
    (void)cudaGetLastError();
    StartAgain();
    out = DeviceArray<float>(1);
    EXPECT_EQ(RunNow(&BlockSum, 1, 64, 256, out, 3), cudaSuccess);
    EXPECT_EQ(HostArray(out, 1)[0], 2016.0f);
    EXPECT_TRUE(Clean()) << Reports();
  }
}

using PlantedBugsDeathTest = PlantedBugs;

TEST_F(PlantedBugsDeathTest, HostTouchesDeviceMemory) {
  float* out = DeviceArray<float>(kN);
  ASSERT_EQ(RunNow(&Fill, 1, 256, 0, out, 0, 256), cudaSuccess);
  volatile float* touched = out;
  EXPECT_DEATH((void)touched[3], "cuda_sim: host access to device memory: read of allocation");
  EXPECT_DEATH(touched[3] = 1, "cuda_sim: host access to device memory: write of allocation");
  EXPECT_EQ(HostArray(out, 1)[0], 1.0f);
}

TEST_F(PlantedBugsDeathTest, AbortsWithoutAHandler) {
  float* out = DeviceArray<float>(kN);
  EXPECT_DEATH(
      {
        SetReportHandler({});
        RunNow(&Fill, 3, 100, 0, out, 0, 257);
      },
      "cuda_sim: out of bounds write");
}

}  // namespace
}  // namespace tally_sim
