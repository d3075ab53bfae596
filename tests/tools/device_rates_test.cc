// A run on a device beside what its maker publishes: every share names what it is of.
#include "tally/tools/common/device_rates.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tally/tools/common/gpu_hardware.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The data sheet of the H100 SXM: 3.35 TB/s, and 1,979 TFLOP/s of bf16 with sparsity, which is
// twice the rate without.
constexpr char kH100[] = "NVIDIA H100 80GB HBM3";
constexpr DeviceRun kRun = {2e-3, 1e12, 5e9};  // 500 TFLOP/s, 2,500 GB/s

TEST(DeviceRates, NamesThePeaksOfAGpuThatTheTableKnows) {
  const Hardware* hardware = HardwareOfGpu(kH100);
  ASSERT_NE(hardware, nullptr);
  const auto rates = RatesJson(kRun, kH100, hardware, MatmulPeak(*hardware, DType::kBF16));
  EXPECT_DOUBLE_EQ(rates["ms"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(rates["TFLOP_per_s"].get<double>(), 500);
  EXPECT_DOUBLE_EQ(rates["GB_per_s"].get<double>(), 2500);
  EXPECT_EQ(rates["gpu"], kH100);
  EXPECT_EQ(rates["peak_name"], "NVIDIA H100 SXM 80 GB, bf16, dense");
  EXPECT_DOUBLE_EQ(rates["peak_flops"].get<double>(), 1979e12 / 2);
  EXPECT_DOUBLE_EQ(rates["mfu"].get<double>(), 500 / (1979 / 2.0));
  EXPECT_EQ(rates["bandwidth_name"], "NVIDIA H100 SXM 80 GB");
  EXPECT_DOUBLE_EQ(rates["bandwidth_peak"].get<double>(), 3.35e12);
  EXPECT_DOUBLE_EQ(rates["of_bandwidth"].get<double>(), 2.5 / 3.35);
  EXPECT_EQ(RatesText(rates),
            "2.000 ms, 500.0 TFLOP/s, 2500 GB/s; "
            "MFU 50.53 % of NVIDIA H100 SXM 80 GB, bf16, dense, 989.5 TFLOP/s; "
            "74.63 % of the bandwidth of NVIDIA H100 SXM 80 GB, 3350 GB/s");
}

TEST(DeviceRates, SaysWhyThereIsNoShare) {
  const auto unknown = RatesJson(kRun, "Some GPU", nullptr, {});
  for (const char* key : {"mfu", "peak_flops", "peak_name", "of_bandwidth", "bandwidth_peak"})
    EXPECT_FALSE(unknown.contains(key)) << key;
  EXPECT_EQ(RatesText(unknown),
            "2.000 ms, 500.0 TFLOP/s, 2500 GB/s; "
            "no MFU: the hardware table has no row for Some GPU");

  const Hardware* hardware = HardwareOfGpu(kH100);
  const auto unpriced = RatesJson(kRun, kH100, hardware, MatmulPeak(*hardware, DType::kI64));
  EXPECT_FALSE(unpriced.contains("mfu"));
  EXPECT_THAT(
      RatesText(unpriced),
      AllOf(HasSubstr("no MFU: NVIDIA H100 SXM 80 GB, "), HasSubstr("(no rate is published)"),
            HasSubstr("74.63 % of the bandwidth"), Not(HasSubstr("MFU 0"))));
}

}  // namespace
}  // namespace tally
