// What every op stands on: copies, fills, faults told in data, and products in all their layouts.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tally/ops/ops.h"
#include "tally/tensor/backend.h"
#include "tally/tensor/gemm.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

constexpr Device kCuda{DeviceKind::kCuda, 0};

// 89 for compute capability 8.9.
int Capability() {
  int major = 0, minor = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), cudaSuccess);
  return major * 10 + minor;
}

TEST(CudaCopies, MoreThanTheStagingBuffers) {
  // There are 16 of 1 MiB: each in turn, the first again, and a rest.
  const int64_t n = int64_t{17} * (1 << 20) / 4 + 5;
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 977);
  const Tensor there = Tensor::FromVector(values, {n}, kCuda);
  EXPECT_EQ(there.ToVector<float>(), values);
  EXPECT_EQ(there.To(kCpu).ToVector<float>(), values);
}

TEST(CudaFills, EverySize) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kU8}) {
    for (const int64_t n : {1, 5, 1027}) {
      EXPECT_THAT(Tensor::Full({dtype, {n}}, 3, kCuda).ToDoubles(), ::testing::Each(3.0));
    }
  }
}

TEST(CudaFaults, ABadIndexIsToldAtTheNextSynchronisation) {
  const Tensor table = Tensor::Ones({DType::kF32, {5, 3}}, kCuda);
  const Tensor ids = Tensor::FromVector(std::vector<int64_t>{0, 7, 2}, {3}, kCuda);
  Backend& backend = ExistingBackend(kCuda);
  for (int round = 0; round < 2; ++round) {
    GatherRows(table, ids);
    const absl::Status status = backend.Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("gather_rows: input 1 has the index 7, which is not in [0, 5)"));
    EXPECT_TRUE(backend.Synchronize().ok());  // told once
  }
}

struct Layout {
  bool a_transposed, b_transposed;
  int64_t batch;
  bool bias;
  int64_t shift = 0;  // of the bias in memory, in elements
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
  const Tensor bias = make(n + layout.shift, out);
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
    if (layout.bias) {
      args.bias = static_cast<const char*>(z.raw()) + layout.shift * ItemSize(out);
    }
    ThrowIfError(ExistingBackend(device).Gemm(args));
    return c.ToDoubles();
  };
  const std::vector<double> cpu = run(kCpu), cuda = run(kCuda);
  for (size_t i = 0; i < cpu.size(); ++i) {
    ASSERT_NEAR(cuda[i], cpu[i], tolerance * (1 + std::abs(cpu[i]))) << i;
  }
  EXPECT_EQ(run(kCuda), cuda) << "another time";
}

TEST(CudaProducts, EveryLayoutAsTheCpu) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const Layout& layout :
           {Layout{ta, tb, 1, false}, Layout{ta, tb, 1, true}, Layout{ta, tb, 3, true}}) {
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

// As that of a slice does.
TEST(CudaProducts, ABiasLiesAnywhere) {
  for (const int64_t shift : {1, 2, 3, 8}) {
    const Layout layout{false, true, 1, true, shift};
    ExpectProduct(DType::kF32, DType::kF32, layout, 64, 48, 32, 1e-5);
    ExpectProduct(DType::kBF16, DType::kBF16, layout, 64, 48, 32, 0x1p-7);
    ExpectProduct(DType::kF16, DType::kF16, layout, 64, 48, 32, 0x1p-9);
  }
}

TEST(CudaProducts, MoreMatricesThanGoAtATime) {
  ExpectProduct(DType::kF32, DType::kF32, {false, true, (1 << 15) + 2, true}, 1, 3, 2, 1e-6);
}

// Few results of long sums, which go in parts through the workspace and are then added up: with
// 8,192 terms of up to 1 a sum is about 30, and a part that is missing is as large.
TEST(CudaProducts, LongSums) {
  for (const bool bias : {false, true}) {
    ExpectProduct(DType::kF32, DType::kF32, {true, false, 1, bias}, 64, 64, 8192, 1e-3);
    ExpectProduct(DType::kBF16, DType::kBF16, {true, false, 1, bias}, 64, 64, 8192, 0x1p-7);
  }
}

// As the hardware has it: k innermost in both. The bias is the library's to add in one of them. To
// f32 as well sums have what tensor cores keep of fp8's: on Hopper about 14 bits of the largest
// term, and there are 16 of up to 1.
TEST(CudaProducts, Fp8) {
  if (Capability() < 89) {
    EXPECT_THAT(
        [] {
          ExpectProduct(DType::kF8E4M3FN, DType::kBF16, {false, true, 1, false}, 16, 16, 16, 0);
        },
        ::testing::ThrowsMessage<Error>(HasSubstr("from compute capability 8.9 on")));
    return;
  }
  for (const bool bias : {false, true}) {
    for (const int64_t batch : {1, 2}) {
      const Layout layout{false, true, batch, bias};
      ExpectProduct(DType::kF8E4M3FN, DType::kBF16, layout, 32, 16, 48, 0x1p-7);
      ExpectProduct(DType::kF8E4M3FN, DType::kF32, layout, 16, 32, 16, 0x1p-9);
    }
  }
}

// Every result is one product of 1 + 2^-20, which needs more than the 10 fraction bits of TF32, and
// zeros: equal in f32 whatever the order of the sum.
TEST(CudaProducts, RoundTheirOperandsToTf32OnlyWhereAllowed) {
  constexpr int64_t kN = 256;
  constexpr double kFine = 1 + 0x1p-20;
  std::vector<double> diagonal(kN * kN);
  for (int64_t i = 0; i < kN; ++i) diagonal[i * kN + i] = kFine;
  const Tensor x = Tensor::FromDoubles(diagonal, {DType::kF32, {kN, kN}}, kCuda);
  const Tensor ones = Tensor::Ones({DType::kF32, {kN, kN}}, kCuda);
  EXPECT_FALSE(Tf32Allowed());
  EXPECT_THAT(MatMul(x, ones).ToDoubles(), ::testing::Each(kFine));
  EXPECT_FALSE(AllowTf32(true));
  const std::vector<double> rounded = MatMul(x, ones).ToDoubles();
  EXPECT_TRUE(AllowTf32(false));
  EXPECT_THAT(rounded, ::testing::Each(1.0));
  EXPECT_THAT(MatMul(x, ones).ToDoubles(), ::testing::Each(kFine));
}

}  // namespace
}  // namespace tally
