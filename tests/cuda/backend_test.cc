// The CUDA backend on the simulated device: memory, copies, products, and what it says when
// something is missing or wrong.
#include "tally/tensor/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda_sim.h"
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/tensor/cuda_device.h"
#include "tally/tensor/gemm.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_THAT(Missing({.count = 0}), HasSubstr("cuda:7: this machine has no GPU that CUDA can use"));
  EXPECT_THAT(Missing({.driver_version = 0}), HasSubstr("this machine has no NVIDIA driver"));
  EXPECT_THAT(Missing({.driver_version = 11040}),
              HasSubstr("the driver is too old: it knows CUDA 11.4 and this build needs 13.0"));
}

TEST_F(SimulatedDevice, RefusesWhatItHasNoKernelsFor) {
  tally_sim::SetDevice({.major = 7, .minor = 5});
  const absl::Status status = internal::CudaDevice::Open(0).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has compute capability 7.5, and this build has kernels for 8.0 and newer"));
}

TEST(CudaBackend, CopiesMoreThanTheStagingBuffers) {
  using internal::StagingBuffers;
  // Each in turn, the first again, and a rest.
  const int64_t n = (StagingBuffers::kBuffers + 1) * StagingBuffers::kBytes / 4 + 5;
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 977);
  const Tensor there = Tensor::FromVector(values, {n}, kCuda);
  EXPECT_EQ(there.ToVector<float>(), values);
  EXPECT_EQ(there.To(kCpu).ToVector<float>(), values);
}

TEST(CudaBackend, Fills) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kU8}) {
    for (const int64_t n : {1, 5, 1027}) {
      EXPECT_THAT(Tensor::Full({dtype, {n}}, 3, kCuda).ToDoubles(), ::testing::Each(3.0));
    }
  }
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
  EXPECT_THAT(message, HasSubstr("add: f32[256,256]: cuda:0: out of memory: 262144 B were asked for"));
  EXPECT_THAT(message, HasSubstr("as node 2 in layer, forward"));
  EXPECT_THAT(message, HasSubstr("786,432 B live of the record: parameter 262,144 B, activation "
                                 "524,288 B"));
  EXPECT_THAT(message, HasSubstr("262,144 B of w f32[256,256]"));
  tally_sim::SetMemory(before);
  const Tensors grads = tape.Gradient(Sum(Add(y, z)), std::vector<Tensor>{w});  // of 3 e^w: itself
  const std::vector<double> g = grads[0].ToDoubles(), x = w.ToDoubles();
  for (size_t i = 0; i < x.size(); i += 997) EXPECT_NEAR(g[i], 3 * std::exp(x[i]), 1e-5);
}

TEST(CudaBackend, TellsABadIndexAtTheNextSynchronisation) {
  const Tensor table = Tensor::Ones({DType::kF32, {5, 3}}, kCuda);
  const Tensor ids = Tensor::FromVector(std::vector<int64_t>{0, 7, 2}, {3}, kCuda);
  GatherRows(table, ids);
  Backend& backend = ExistingBackend(kCuda);
  const absl::Status status = backend.Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gather_rows: input 1 has the index 7, which is not in [0, 5)"));
  EXPECT_TRUE(backend.Synchronize().ok());  // told once
}

struct Layout {
  bool a_transposed, b_transposed;
  int64_t batch;
  bool bias;
};

void ExpectProduct(DType dtype, DType out, const Layout& layout, int64_t m, int64_t n, int64_t k,
                   double tolerance) {
  SCOPED_TRACE(absl::StrCat(Name(dtype), " ", m, "x", n, "x", k, " ", layout.a_transposed,
                            layout.b_transposed, " batch ", layout.batch, " bias ", layout.bias));
  Random random(3);
  const auto make = [&](int64_t count, DType type) {
    return Cast(Tensor::Uniform({DType::kF32, {count}}, -1, 1, random), type);
  };
  const Tensor a = make(layout.batch * m * k, dtype), b = make(layout.batch * k * n, dtype);
  const Tensor bias = make(n, out);
  const auto run = [&](Device device) {
    const Tensor x = a.To(device), y = b.To(device), z = bias.To(device);
    const Tensor c = Tensor::Zeros({out, {layout.batch * m * n}}, device);
    GemmArgs args;
    args.m = m;
    args.n = n;
    args.k = k;
    args.batch = {1, layout.batch};
    args.a = {x.raw(), dtype, layout.a_transposed ? m : k, layout.a_transposed, {0, m * k}};
    args.b = {y.raw(), dtype, layout.b_transposed ? k : n, layout.b_transposed, {0, k * n}};
    args.c = {c.raw(), out, n, {0, m * n}};
    args.compute = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    args.bias = layout.bias ? z.raw() : nullptr;
    ThrowIfError(ExistingBackend(device).Gemm(args));
    return c.ToDoubles();
  };
  const std::vector<double> cpu = run(kCpu), cuda = run(kCuda);
  for (size_t i = 0; i < cpu.size(); ++i) {
    ASSERT_NEAR(cuda[i], cpu[i], tolerance * (1 + std::abs(cpu[i]))) << i;
  }
}

TEST(CudaBackend, MultipliesEveryLayoutAsTheCpu) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const Layout& layout : {Layout{ta, tb, 1, false}, Layout{ta, tb, 3, true}}) {
        ExpectProduct(DType::kF64, DType::kF64, layout, 5, 7, 9, 1e-13);
        ExpectProduct(DType::kF32, DType::kF32, layout, 5, 7, 9, 1e-5);
        ExpectProduct(DType::kBF16, DType::kBF16, layout, 6, 4, 8, 0x1p-7);
        ExpectProduct(DType::kF16, DType::kF16, layout, 6, 4, 8, 0x1p-10);
        ExpectProduct(DType::kF32, DType::kF32, layout, 1, 3, 1, 1e-6);
        for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
          ExpectProduct(dtype, dtype, layout, 3, 5, 0, 0);
        }
      }
    }
  }
}

TEST(CudaBackend, MultipliesMoreMatricesThanGoAtATime) {
  ExpectProduct(DType::kF32, DType::kF32, {false, true, (1 << 15) + 2, true}, 1, 3, 2, 1e-6);
}

// As the hardware has it: k innermost in both.
TEST(CudaBackend, MultipliesFp8) {
  ExpectProduct(DType::kF8E4M3FN, DType::kBF16, {false, true, 1, false}, 32, 16, 48, 0x1p-7);
  ExpectProduct(DType::kF8E4M3FN, DType::kF32, {false, true, 2, false}, 16, 32, 16, 1e-5);
}

TEST(CudaBackend, RoundsOperandsToTf32OnlyWhereAllowed) {
  const auto product = [&](double a) {
    const Tensor x = Tensor::FromDoubles({a}, {DType::kF32, {1, 1}}, kCuda);
    return MatMul(x, Tensor::Ones({DType::kF32, {1, 1}}, kCuda)).ToDoubles()[0];
  };
  const double fine = 1 + 0x1p-20;  // needs more than the 10 fraction bits of TF32
  EXPECT_FALSE(Tf32Allowed());
  EXPECT_EQ(product(fine), fine);
  EXPECT_FALSE(AllowTf32(true));
  EXPECT_EQ(product(fine), 1);
  EXPECT_TRUE(AllowTf32(false));
  EXPECT_EQ(product(fine), fine);
}

}  // namespace
}  // namespace tally
