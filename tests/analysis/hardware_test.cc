#include "tally/analysis/hardware.h"

#include <set>

#include "gtest/gtest.h"

namespace tally {
namespace {

const Hardware& Get(const char* name) {
  const Hardware* hardware = FindHardware(name);
  EXPECT_NE(hardware, nullptr) << name;
  return *hardware;
}

double Dense(const char* name, DType dtype) { return MatmulPeak(Get(name), dtype).flops; }

// "with sparsity" is twice what a product of full matrices can do; 1 TFLOP/s is 10^12, not 2^40.
TEST(Hardware, DenseRatesAreHalvesOfTheSparseOnesInPrint) {
  EXPECT_EQ(Dense("h100-sxm", DType::kBF16), 989'500'000'000'000.0);
  EXPECT_EQ(MatmulPeak(Get("h100"), DType::kBF16, {.sparse = true}).flops, 1'979'000'000'000'000.0);
  EXPECT_EQ(Dense("h100", DType::kF8E4M3FN), 1'979e12);
  EXPECT_EQ(Dense("h100-pcie", DType::kBF16), 756.5e12);
  EXPECT_EQ(Dense("a100", DType::kBF16), 312'000'000'000'000.0);
  EXPECT_NE(Dense("a100", DType::kBF16), 343'047'627'866'112.0);  // 312 · 2^40
  EXPECT_EQ(Dense("l4", DType::kBF16), 121e12);
  EXPECT_EQ(Dense("b200", DType::kBF16), 2'250e12);
  for (const Hardware& h : HardwareTable()) {
    for (int t = 0; t < kNumDTypes; ++t) {
      const MatmulRate& rate = h.matmul[t];
      if (rate.sparse > 0) {
        EXPECT_NEAR(rate.sparse / rate.dense, 2, 1e-3) << h.name;
      }
    }
  }
}

TEST(Hardware, BandwidthMemoryAndLinksAreAsPublished) {
  EXPECT_EQ(Get("h100").bandwidth, 3.35e12);
  EXPECT_EQ(Get("h100-pcie").bandwidth, 2e12);
  EXPECT_EQ(Get("a100-40gb").bandwidth, 1.555e12);
  EXPECT_EQ(Get("a100-80gb").bandwidth, 2.039e12);
  EXPECT_EQ(Get("h200").bandwidth, 4.8e12);
  EXPECT_EQ(Get("h100").memory, 80'000'000'000);
  EXPECT_EQ(Get("tpu-v4").memory, 34'359'738'368);  // 32 GiB, as its documentation says
  EXPECT_EQ(Get("tpu-v5e").memory, 16'000'000'000);
  // NVLink's 900 GB/s are 450 out and 450 in.
  EXPECT_EQ(Get("h100").link, 450e9);
  // 80 GB as sold is a little under 80 GiB as reported, which is more.
  for (const Hardware& h : HardwareTable()) {
    EXPECT_GT(h.memory_reported, 0.89 * static_cast<double>(h.memory)) << h.name;
    EXPECT_LT(h.memory_reported, 1.0738 * static_cast<double>(h.memory)) << h.name;  // 2^30 / 10^9
  }
}

TEST(Hardware, TheRateOfAnF32ProductIsThatOfTrueF32UnlessTf32IsNamed) {
  EXPECT_EQ(MatmulPeak(Get("h100"), DType::kF32).flops, 67e12);
  EXPECT_EQ(MatmulPeak(Get("h100"), DType::kF32).name, "NVIDIA H100 SXM 80 GB, f32, dense");
  const Peak tf32 = MatmulPeak(Get("h100"), DType::kF32, {.tf32 = true});
  EXPECT_EQ(tf32.flops, 494.5e12);
  EXPECT_EQ(tf32.name, "NVIDIA H100 SXM 80 GB, tf32, dense (operands rounded from f32)");
  // It changes nothing for other dtypes.
  EXPECT_EQ(MatmulPeak(Get("h100"), DType::kBF16, {.tf32 = true}).flops, 989.5e12);
  // A GeForce card's tensor cores accumulate in f32 at half the advertised rate.
  EXPECT_EQ(Dense("rtx-4090", DType::kF16), 165.2e12);
}

TEST(Hardware, WhatIsNotPublishedIsNamedAndNeverInvented) {
  const Peak f8 = MatmulPeak(Get("a100"), DType::kF8E4M3FN);
  EXPECT_EQ(f8.flops, 312e12);
  EXPECT_EQ(f8.name, "NVIDIA A100 SXM 80 GB, bf16, dense (none of f8e4m3fn is published)");
  EXPECT_EQ(MatmulPeak(Get("tpu-v4"), DType::kF32).flops, 275e12);
  EXPECT_EQ(MatmulPeak(Get("tpu-v4"), DType::kF64).flops, 0);
  EXPECT_EQ(MatmulPeak(Get("h100"), DType::kI64).flops, 0);
  EXPECT_EQ(MatmulPeak(Get("tpu-v4"), DType::kBF16, {.sparse = true}).name,
            "Google TPU v4 32 GiB, bf16, dense");
}

TEST(Hardware, VectorRatesServeEverythingButProducts) {
  EXPECT_EQ(VectorPeak(Get("h100"), DType::kBF16).flops, 67e12);
  EXPECT_EQ(VectorPeak(Get("h100"), DType::kF64).flops, 34e12);
  EXPECT_EQ(VectorPeak(Get("h100"), DType::kI64).name, "NVIDIA H100 SXM 80 GB, vector f32");
  // Two cores of 8·128 lanes with 4 units each at 1.75 GHz.
  EXPECT_NEAR(VectorPeak(Get("tpu-v5p"), DType::kF32).flops, 2 * 8 * 128 * 4 * 1.75e9, 1);
}

TEST(Hardware, EveryNameIsFoundInAnyCaseAndEveryRowHasItsSource) {
  std::set<std::string> seen;
  for (const std::string& name : HardwareNames()) {
    EXPECT_NE(FindHardware(name), nullptr) << name;
    EXPECT_TRUE(seen.insert(name).second) << name << " twice";
  }
  EXPECT_EQ(FindHardware("H100"), FindHardware("h100-sxm"));
  EXPECT_EQ(FindHardware("a100"), FindHardware("A100-80GB"));
  EXPECT_EQ(FindHardware("h10"), nullptr);
  EXPECT_EQ(FindHardware(""), nullptr);
  for (const char* name : {"a100-40gb", "a100-80gb", "h100-sxm", "h100-pcie", "h200", "b200",
                           "mi300x", "l4", "rtx-4090", "tpu-v4", "tpu-v5e", "tpu-v5p"}) {
    EXPECT_EQ(Get(name).name, name);
  }
  for (const Hardware& h : HardwareTable()) {
    EXPECT_FALSE(h.source.empty() || h.title.empty() || h.link_name.empty()) << h.name;
    EXPECT_GT(h.vector_f32 * h.link * h.bandwidth, 0) << h.name;
  }
}

}  // namespace
}  // namespace tally
