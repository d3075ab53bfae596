// The runtime: memory, errors, streams and events, and what a device refuses.

#include <cmath>

#include "sim_test.h"

namespace tally_sim {
namespace {

using testing::HasSubstr;

using RuntimeTest = SimTest;

__global__ void Scale(const float* in, float* out, float factor, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = in[i] * factor;
}

struct Stream {
  Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess); }
  ~Stream() { EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess); }
  cudaStream_t handle = nullptr;
};

float* PinnedFloats(size_t n) {
  float* pointer = nullptr;
  EXPECT_EQ(cudaHostAlloc(&pointer, n * sizeof(float), cudaHostAllocMapped), cudaSuccess);
  return pointer;
}

TEST_F(RuntimeTest, MemoryIsCounted) {
  SetMemory(1 << 20);
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 1u << 20);
  EXPECT_EQ(total, 1u << 20);
  float* a = DeviceArray<float>(100);
  float* b = DeviceArray<float>(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(GetCounters().bytes, 4400u);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, (1u << 20) - 512 - 4096);  // in units of 256
  void* big = nullptr;
  EXPECT_EQ(cudaMalloc(&big, 1 << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(big, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "it does not stick";
  EXPECT_EQ(cudaFree(b), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(GetCounters().bytes, 400u);
  EXPECT_EQ(GetCounters().peak_bytes, 4400u);
  EXPECT_EQ(GetCounters().allocations, 1);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(cudaFree(b), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_THAT(Reports(), HasSubstr("cudaFree of freed allocation"));
}

TEST_F(RuntimeTest, DevicesThatCannotBeUsed) {
  int count = -1;
  SetDevice({.count = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorNoDevice");
  SetDevice({.driver_version = 12080});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaDriverGetVersion(&count), cudaSuccess);
  EXPECT_EQ(count, 12080);
  SetDevice({.major = 7, .minor = 5});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.major * 10 + properties.minor, 75);
  EXPECT_STREQ(properties.name, "Simulated GPU");
  EXPECT_EQ(properties.multiProcessorCount, 2);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 227u << 10);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
  EXPECT_TRUE(Clean()) << Reports();
}

TEST_F(RuntimeTest, LaunchesThatADeviceRefuses) {
  float* x = DeviceArray(std::vector<float>(4, 1));
  const auto launch = [&](dim3 grid, dim3 block, size_t shared) {
    return RunNow(&Scale, grid, block, shared, x, x, 2.0f, 4);
  };
  EXPECT_EQ(launch(0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 0, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(32, 33), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(launch(1, 32, 48 << 10), cudaSuccess);
  EXPECT_EQ(
      cudaFuncSetAttribute(&Scale, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1),
      cudaErrorInvalidValue);
  (void)cudaGetLastError();
  ASSERT_EQ(cudaFuncSetAttribute(&Scale, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10),
            cudaSuccess);
  EXPECT_EQ(launch(1, 1024, 227 << 10), cudaSuccess);
  EXPECT_EQ(HostArray(x, 4), std::vector<float>(4, 4));
  EXPECT_TRUE(Clean()) << Reports();
}

TEST_F(RuntimeTest, KernelsAreLoadedAtTheirFirstLaunch) {
  float* x = DeviceArray(std::vector<float>(4, 1));
  const auto launch = [&] { return RunNow(&Scale, 1, 32, 0, x, x, 2.0f, 4); };
  SetLoadBytes(1 << 20);
  SetMemory(GetCounters().bytes + 1000);
  EXPECT_EQ(launch(), cudaErrorMemoryAllocation);
  EXPECT_EQ(HostArray(x, 4), std::vector<float>(4, 1));
  SetMemory(size_t{1} << 30);
  EXPECT_EQ(launch(), cudaSuccess);
  SetMemory(GetCounters().bytes + 1000);
  EXPECT_EQ(launch(), cudaSuccess);
  SetLoadBytes(0);
  EXPECT_TRUE(Clean()) << Reports();
}

TEST_F(RuntimeTest, UncheckedErrors) {
  EXPECT_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
  EXPECT_EQ(cudaSetDevice(7), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(Reports(), HasSubstr("unchecked error cudaErrorInvalidDevice of cudaSetDevice, then "
                                   "a call of cudaDeviceSynchronize"));
}

TEST_F(RuntimeTest, CopiesAreChecked) {
  float* d = DeviceArray<float>(10);
  std::vector<float> host(11, 1);
  EXPECT_EQ(cudaMemcpy(d, host.data(), 44, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_THAT(Reports(), HasSubstr("cudaMemcpy of 44 bytes: out of bounds: 4 bytes past the end of "
                                   "allocation"));
  StartAgain();
  d = DeviceArray<float>(10);
  EXPECT_EQ(cudaMemcpy(d, host.data(), 40, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_THAT(Reports(), HasSubstr("pointers do not fit the kind of copy"));
  StartAgain();
  EXPECT_EQ(cudaMemsetAsync(d, 0, 4, nullptr), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_THAT(Reports(), HasSubstr("use of freed allocation"));
}

// Work waits until it is synchronised: what the host reads before is what was there before.
TEST_F(RuntimeTest, ResultsReadTooEarlyAreNotThere) {
  const Stream stream;
  float* x = DeviceArray(std::vector<float>(4, 3));
  float* pinned = PinnedFloats(4);
  ASSERT_EQ(Launch(&Scale, 1, 4, 0, stream.handle, x, x, 2.0f, 4), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, x, 16, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  EXPECT_TRUE(std::isnan(pinned[0]));
  ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
  EXPECT_EQ(pinned[0], 6.0f);
  SetEager(true);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 16, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, x, 16, cudaMemcpyDeviceToHost, stream.handle), cudaSuccess);
  EXPECT_EQ(pinned[0], 0.0f);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(RuntimeTest, PinnedMemoryReusedBeforeItsCopyRan) {
  const Stream stream;
  float* x = DeviceArray<float>(4);
  float* pinned = PinnedFloats(4);
  const auto copy_then_overwrite = [&](float* from, bool wait) {
    std::fill(from, from + 4, 1.0f);
    EXPECT_EQ(cudaMemcpyAsync(x, from, 16, cudaMemcpyHostToDevice, stream.handle), cudaSuccess);
    if (wait) {
      EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
    }
    std::fill(from, from + 4, 2.0f);
    EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
    return HostArray(x, 4)[0];
  };
  float pageable[4];
  EXPECT_EQ(copy_then_overwrite(pinned, true), 1.0f);
  EXPECT_EQ(copy_then_overwrite(pinned, false), 2.0f) << "the bug shows";
  EXPECT_EQ(copy_then_overwrite(pageable, false), 1.0f) << "pageable memory is read in the call";
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
}

TEST_F(RuntimeTest, MappedMemoryIsOneAddress) {
  float* mapped = PinnedFloats(8);
  std::fill(mapped, mapped + 8, 1.5f);
  void* on_device = nullptr;
  ASSERT_EQ(cudaHostGetDevicePointer(&on_device, mapped, 0), cudaSuccess);
  EXPECT_EQ(on_device, mapped);
  EXPECT_EQ(RunNow(&Scale, 1, 8, 0, mapped, mapped, 2.0f, 8), cudaSuccess);
  EXPECT_EQ(mapped[7], 3.0f);
  EXPECT_EQ(cudaFreeHost(mapped), cudaSuccess);
  EXPECT_TRUE(Clean()) << Reports();
}

// A second stream reads what the first one writes, with or without waiting for its event.
TEST_F(RuntimeTest, MissingWaitBetweenStreams) {
  cudaEvent_t written;
  ASSERT_EQ(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaSuccess);
  const auto wrong_seeds = [&](bool wait) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      SetSeed(seed);
      const Stream writer, reader;
      float* x = DeviceArray(std::vector<float>(4, 1));
      float* y = DeviceArray<float>(4);
      EXPECT_EQ(Launch(&Scale, 1, 4, 0, writer.handle, x, x, 5.0f, 4), cudaSuccess);
      EXPECT_EQ(cudaEventRecord(written, writer.handle), cudaSuccess);
      if (wait) {
        EXPECT_EQ(cudaStreamWaitEvent(reader.handle, written), cudaSuccess);
      }
      EXPECT_EQ(Launch(&Scale, 1, 4, 0, reader.handle, x, y, 2.0f, 4), cudaSuccess);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      wrong += HostArray(y, 4)[0] != 10.0f;
    }
    return wrong;
  };
  EXPECT_EQ(wrong_seeds(true), 0);
  EXPECT_GE(wrong_seeds(false), 2);
  EXPECT_EQ(cudaEventDestroy(written), cudaSuccess);
}

TEST_F(RuntimeTest, EventsTellWhatIsDone) {
  const Stream stream;
  cudaEvent_t start, end;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(start), cudaSuccess) << "nothing recorded";
  float* x = DeviceArray(std::vector<float>(1024, 1));
  ASSERT_EQ(cudaEventRecord(start, stream.handle), cudaSuccess);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Launch(&Scale, 4, 256, 0, stream.handle, x, x, 1.0f, 1024), cudaSuccess);
  }
  ASSERT_EQ(cudaEventRecord(end, stream.handle), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  int queries = 0;
  cudaError_t state;
  while ((state = cudaEventQuery(end)) == cudaErrorNotReady) ++queries;
  EXPECT_EQ(state, cudaSuccess);
  EXPECT_GT(queries, 0);
  EXPECT_EQ(GetCounters().kernels, 20);
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, stream.handle), cudaErrorInvalidResourceHandle);
  (void)cudaGetLastError();
}

// The default stream waits for blocking streams and they for it; others take no notice.
TEST_F(RuntimeTest, DefaultStreamOrdersBlockingStreams) {
  cudaStream_t blocking;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SetSeed(seed);
    float* x = DeviceArray(std::vector<float>(1, 1));
    ASSERT_EQ(Launch(&Scale, 1, 1, 0, blocking, x, x, 3.0f, 1), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(x, 0, 4, nullptr), cudaSuccess);
    ASSERT_EQ(Launch(&Scale, 1, 1, 0, blocking, x, x, 3.0f, 1), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
    EXPECT_EQ(HostArray(x, 1)[0], 0.0f);
  }
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(RuntimeTest, MemoryInTheOrderOfAStream) {
  const Stream stream, other;
  float* x = nullptr;
  ASSERT_EQ(cudaMallocAsync(&x, 16, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 16, stream.handle), cudaSuccess);
  ASSERT_EQ(Launch(&Scale, 1, 4, 0, stream.handle, x, x, 2.0f, 4), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(x, stream.handle), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream.handle), cudaSuccess);
  EXPECT_EQ(GetCounters().allocations, 0);
  EXPECT_TRUE(Clean()) << Reports();
  // Too early: the other stream does not wait.
  for (uint64_t seed = 1; seed <= 8 && Clean(); ++seed) {
    SetSeed(seed);
    ASSERT_EQ(cudaMallocAsync(&x, 16, stream.handle), cudaSuccess);
    ASSERT_EQ(Launch(&Scale, 1, 4, 0, other.handle, x, x, 2.0f, 4), cudaSuccess);
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
  }
  EXPECT_THAT(Reports(), HasSubstr("before cudaMallocAsync of allocation"));
  StartAgain();
}

// An error of a kernel is told at the next synchronisation, not at the launch, and stays.
TEST_F(RuntimeTest, ErrorsOfKernelsComeLateAndStay) {
  const Stream stream;
  float* x = DeviceArray<float>(64);
  ASSERT_EQ(Launch(&Scale, 1, 128, 0, stream.handle, x, x, 2.0f, 128), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.handle), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 4), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  StartAgain();
  EXPECT_EQ(cudaMalloc(&more, 4), cudaSuccess);
}

TEST_F(RuntimeTest, HandlersMayThrow) {
  float* x = DeviceArray<float>(64);
  const ReportHandler old = SetReportHandler([](const std::string& line) { throw line; });
  ASSERT_EQ(Launch(&Scale, 1, 128, 0, nullptr, x, x, 2.0f, 128), cudaSuccess);
  EXPECT_THROW((void)cudaDeviceSynchronize(), std::string);
  SetReportHandler(old);
  StartAgain();
  x = DeviceArray(std::vector<float>(64, 1));
  EXPECT_EQ(RunNow(&Scale, 1, 64, 0, x, x, 2.0f, 64), cudaSuccess);
  EXPECT_EQ(HostArray(x, 64)[63], 2.0f);
}

TEST_F(RuntimeTest, Occupancy) {
  const auto blocks = [](int threads, size_t shared) {
    int n = -1;
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, &Scale, threads, shared),
              cudaSuccess);
    return n;
  };
  EXPECT_EQ(blocks(1024, 0), 2);        // 2048 threads
  EXPECT_EQ(blocks(32, 0), 32);         // at most 32 blocks
  EXPECT_EQ(blocks(128, 47 << 10), 4);  // 228 KiB, 1 KiB of each block reserved
  EXPECT_EQ(blocks(128, 49 << 10), 0);  // more than a kernel has without asking
}

}  // namespace
}  // namespace tally_sim
