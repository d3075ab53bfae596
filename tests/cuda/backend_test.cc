// The CUDA backend on the simulated device: its memory, and what it says when something is missing
// or wrong.
#include "tally/tensor/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda_sim.h"
#include "tally/autograd/tape.h"
#include "tally/nn/parameters.h"
#include "tally/ops/ops.h"
#include "tally/optim/adamw.h"
#include "tally/tensor/cuda_device.h"
#include "tally/tensor/gemm.h"

namespace tally {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr Device kCuda{DeviceKind::kCuda, 0};

class SimulatedDevice : public ::testing::Test {
 protected:
  ~SimulatedDevice() override { tally_sim::SetDevice({}); }

  // A device that nothing has opened.
  std::string Missing(const tally_sim::DeviceOptions& options) {
    tally_sim::SetDevice(options);
    const absl::Status status = BackendFor({DeviceKind::kCuda, 7}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  }
};

TEST_F(SimulatedDevice, SaysWhatIsMissing) {
  EXPECT_EQ(Missing({}), "cuda:7: this machine has one GPU, cuda:0; use cpu, or meta for sizes");
  EXPECT_THAT(Missing({.count = 0}),
              HasSubstr("cuda:7: this machine has no GPU that CUDA can use"));
  EXPECT_THAT(Missing({.driver_version = 0}), HasSubstr("this machine has no NVIDIA driver"));
  EXPECT_THAT(Missing({.driver_version = 11040}),
              HasSubstr("the driver is too old: it knows CUDA 11.4 and this build needs 13.0"));
}

TEST_F(SimulatedDevice, RefusesWhatItHasNoKernelsFor) {
  tally_sim::SetDevice({.major = 7, .minor = 5});
  const absl::Status status = internal::CudaDevice::Open(0).status();
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("has compute capability 7.5, and this build has kernels for 8.0 and newer"));
}

TEST(CudaBackend, KeepsRequestedBytesApartFromReserved) {
  const int64_t before = GpuStatsOf(kCuda)->memory.requested_bytes;
  const Tensor x = Tensor::Zeros({DType::kF32, {1000}}, kCuda);
  const GpuStats stats = *GpuStatsOf(kCuda);
  EXPECT_EQ(stats.memory.requested_bytes - before, 4000);
  EXPECT_GE(stats.memory.reserved_bytes, stats.memory.requested_bytes);
  EXPECT_EQ(stats.model, "Simulated GPU");
  EXPECT_EQ(GpuStatsOf(kCpu).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CudaBackend, TakesItsPoolFromTheDevice) {
  internal::CudaSegments segments(0);
  internal::CachingPool pool(segments);
  const int64_t before = tally_sim::GetCounters().allocations;
  void* a = pool.Allocate(1000);
  void* b = pool.Allocate(5000);
  EXPECT_EQ(tally_sim::GetCounters().allocations, before + 1);  // a segment for both
  pool.Free(a);
  pool.Free(b);
  pool.ReleaseCached();
  EXPECT_EQ(tally_sim::GetCounters().allocations, before);
}

// An op that finds no memory says what it is, where it stands, how much it wanted and what lives;
// the tape goes on.
TEST(CudaBackend, NamesTheNodeThatFindsNoMemory) {
  const size_t before = tally_sim::Device().memory;
  Random random(1);
  const Tensor w = Tensor::Uniform({DType::kF32, {256, 256}}, -1, 1, random, kCuda);
  Declare(w, Origin::kParameter, "w");
  Tape tape;
  tape.Watch({w});
  Tensor y;
  {
    const Scope scope("layer");
    y = Exp(w);
  }
  tally_sim::SetMemory(tally_sim::GetCounters().bytes + 300 * 1024);  // room for one more, not two
  const Tensor z = Mul(y, 2.0);
  std::string message;
  try {
    const Scope scope("layer");
    Add(y, z);
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
    message = error.what();
  }
  EXPECT_THAT(message,
              HasSubstr("add: f32[256,256]: cuda:0: out of memory: 262144 B were asked for"));
  EXPECT_THAT(message, HasSubstr("as node 2 in layer, forward"));
  EXPECT_THAT(message, HasSubstr("786,432 B live of the record: parameter 262,144 B, activation "
                                 "524,288 B"));
  EXPECT_THAT(message, HasSubstr("262,144 B of w f32[256,256]"));
  tally_sim::SetMemory(before);
  const Tensors grads = tape.Gradient(Sum(Add(y, z)), std::vector<Tensor>{w});  // of 3 e^w: itself
  const std::vector<double> g = grads[0].ToDoubles(), x = w.ToDoubles();
  for (size_t i = 0; i < x.size(); i += 997) EXPECT_NEAR(g[i], 3 * std::exp(x[i]), 1e-5);
}

// A step for which there is no memory can be made again once there is: each parameter has its one
// step, the first one by the correction of step one.
TEST_F(SimulatedDevice, AStepThatEndsForWantOfMemoryIsDoneOnce) {
  const TensorSpec small{DType::kF32, {4}}, large{DType::kF32, {1 << 20}};
  const std::vector<Tensor> params = {Tensor::Full(small, 1.0, kCuda),
                                      Tensor::Full(large, 1.0, kCuda)};
  const std::vector<Tensor> grads = {Tensor::Full(small, 0.5, kCuda),
                                     Tensor::Full(large, 0.5, kCuda)};
  Declare(params[1], Origin::kParameter, "w.large");
  AdamW adamw({.lr = 0.1, .weight_decay = 0.1});
  std::string message;
  const size_t before = tally_sim::Device().memory;
  {
    Tape tape;
    tally_sim::SetMemory(tally_sim::GetCounters().bytes + (3 << 20));  // not the 4 MiB of a moment
    try {
      adamw.Step(params, grads);
    } catch (const Error& error) {
      EXPECT_EQ(error.status().code(), absl::StatusCode::kResourceExhausted);
      message = error.what();
    }
    EXPECT_EQ(adamw.steps(), 0);
    tally_sim::SetMemory(before);
  }
  EXPECT_THAT(message, HasSubstr("adamw: w.large.exp_avg: f32[1048576]: cuda:0: out of memory"));
  EXPECT_THAT(message, HasSubstr("in optimizer, optimizer; "));
  // All that the step has come to is the first parameter, its gradient and state of 16 B each.
  EXPECT_THAT(message, HasSubstr("64 B live of the record"));
  EXPECT_THAT(message, HasSubstr("8,388,608 B more of cuda:0 in use that the record has not met"));
  adamw.Step(params, grads);
  EXPECT_EQ(adamw.steps(), 1);
  // The corrected moments of a first step are the gradient and its square: p - lr (1 + wd p).
  EXPECT_THAT(params[0].ToDoubles(), Each(DoubleNear(1 - 0.1 * (1 + 0.1), 1e-6)));
  EXPECT_NEAR(params[1].ToDoubles()[77], 1 - 0.1 * (1 + 0.1), 1e-6);
}

TEST_F(SimulatedDevice, NamesTheParameterForWhichThereIsNoMemory) {
  const size_t before = tally_sim::Device().memory;
  Parameters parameters(Random(1, RandomStream::kInit), DType::kF32, kCuda);
  tally_sim::SetMemory(tally_sim::GetCounters().bytes + (1 << 20));
  EXPECT_THAT(
      [&] {
        parameters.Normal("h.7.w", {1024, 1024}, 1.0);
      },
      ThrowsMessage<Error>(StartsWith("parameter h.7.w: f32[1024,1024]: cuda:0: out of")));
  tally_sim::SetMemory(before);
}

// fp8 on a device that has bf16 alone.
TEST_F(SimulatedDevice, RefusesFp8BeforeTheHardwareThatHasIt) {
  const Tensor x = Tensor::Zeros({DType::kF8E4M3FN, {16, 16}}, kCuda);
  const Tensor y = Tensor::Zeros({DType::kBF16, {16, 16}}, kCuda);
  GemmArgs args;
  args.m = args.n = args.k = 16;
  args.a = {.data = x.raw(), .dtype = x.dtype(), .ld = 16};
  args.b = {.data = x.raw(), .dtype = x.dtype(), .ld = 16, .transposed = true};
  args.c = {.data = y.raw(), .dtype = y.dtype(), .ld = 16};
  tally_sim::SetDevice({.major = 8, .minor = 0});
  const absl::Status status = ExistingBackend(kCuda).Gemm(args);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("from compute capability 8.9 on"));
}

// What follows spoils the device or chooses its pool, each in a process of its own.
class CudaBackendDeathTest : public ::testing::Test {
 protected:
  CudaBackendDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process where something is not as it is to be.
void Demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

// A kernel and an algorithm of a product that are used for the first time while the pool caches
// what they need to be loaded.
void LoadInCachedMemory() {
  setenv("TALLY_CUDA_CACHING", "1", 1);
  const Tensor x = Tensor::Ones({DType::kF32, {8, 8}}, kCuda);
  MatMul(x, x);  // takes the workspace
  const auto fill_memory = [] {
    Tensor::Zeros({DType::kU8, {int64_t{8} << 20}}, kCuda);  // freed, and cached
    tally_sim::SetMemory(tally_sim::GetCounters().bytes);
  };
  const auto reserved = [] { return GpuStatsOf(kCuda)->memory.reserved_bytes; };
  tally_sim::SetLoadBytes(1 << 20);
  fill_memory();
  int64_t before = reserved();
  const Tensor y = Exp(x);
  Demand(reserved() < before, "cached memory went back for a kernel");
  Demand(y.ToDoubles()[63] == std::exp(1.0f), "the kernel ran");
  tally_sim::SetMemory(size_t{1} << 30);
  fill_memory();
  before = reserved();
  const Tensor z = MatMul(Reshape(x, {4, 16}), Reshape(x, {16, 4}));
  Demand(reserved() < before, "cached memory went back for a product");
  Demand(z.ToDoubles()[15] == 16, "the product ran");
  std::exit(0);
}

TEST_F(CudaBackendDeathTest, GivesCachedMemoryBackForWhatIsToBeLoaded) {
  EXPECT_EXIT(LoadInCachedMemory(), ::testing::ExitedWithCode(0), "");
}

__global__ void Write(float* where) { *where = 1; }

// Every call after a fault of a kernel tells it, and none ends the process.
void LoseTheDevice() {
  tally_sim::SetReportHandler([](const std::string&) {});
  const Tensor x = Tensor::Ones({DType::kF32, {8, 8}}, kCuda);
  Tensor dropped = MatMul(x, x);
  cudaLaunchConfig_t one = {};
  one.gridDim = one.blockDim = dim3(1);
  Demand(cudaLaunchKernelEx(&one, &Write, static_cast<float*>(nullptr)) == cudaSuccess, "started");
  Demand(cudaDeviceSynchronize() == cudaErrorIllegalAddress, "a fault");
  cudaGetLastError();
  const auto tell = [](const char* name, const auto& call) {
    absl::Status status;
    try {
      call();
    } catch (const Error& error) {
      status = error.status();
    }
    const std::string message(status.message());
    Demand(status.code() == absl::StatusCode::kInternal, name);
    Demand(
        message.find("cuda:0: the device is lost to this program: a kernel launched by now "
                     "failed, an illegal memory access was encountered "
                     "(cudaErrorIllegalAddress); with CUDA_LAUNCH_BLOCKING=1") != std::string::npos,
        message.c_str());
    std::fprintf(stderr, "%s: %s\n", name, message.c_str());
  };
  for (int round = 0; round < 2; ++round) {
    tell("launch", [&] { Exp(x); });
    tell("product", [&] { MatMul(x, x); });
    tell("fill", [&] { FillInPlace(x, 2); });
    tell("memory", [&] { Tensor::Empty({DType::kF32, {1 << 20}}, kCuda); });
    tell("copy in", [&] { Tensor::Ones({DType::kF32, {2}}).To(kCuda); });
    tell("copy out", [&] { x.ToDoubles(); });
    tell("wait", [&] { ThrowIfError(ExistingBackend(kCuda).Synchronize()); });
  }
  dropped = Tensor();
  ThrowIfError(ReleaseCachedMemory(kCuda));
  std::exit(0);
}

TEST_F(CudaBackendDeathTest, TellsThatAFaultHasLostTheDevice) {
  EXPECT_EXIT(LoseTheDevice(), ::testing::ExitedWithCode(0), "exp: .*cuda:0: the device is lost");
}

}  // namespace
}  // namespace tally
