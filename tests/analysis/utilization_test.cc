#include "tally/analysis/utilization.h"

#include "gtest/gtest.h"

namespace tally {
namespace {

Peak H100(bool sparse) {
  return MatmulPeak(*FindHardware("h100"), DType::kBF16, {.sparse = sparse});
}

// 480 TFLOP/s in one second: 48.5 % of what dense products can do, 24.3 % of the rate in print.
TEST(Utilization, NamesThePeakItIsMeasuredWith) {
  const MeasuredStep step{
      .model_flops = 480'000'000'000'000, .hardware_flops = 640'000'000'000'000, .seconds = 1};
  const Utilization dense = *MeasureUtilization(step, H100(false));
  EXPECT_NEAR(dense.mfu, 0.485, 0.0005);
  EXPECT_DOUBLE_EQ(dense.mfu, 480.0 / 989.5);
  EXPECT_DOUBLE_EQ(dense.hfu, 640.0 / 989.5);
  EXPECT_EQ(dense.peak.name, "NVIDIA H100 SXM 80 GB, bf16, dense");
  const Utilization sparse = *MeasureUtilization(step, H100(true));
  EXPECT_NEAR(sparse.mfu, 0.243, 0.0005);
  EXPECT_EQ(sparse.peak.name, "NVIDIA H100 SXM 80 GB, bf16, sparse");
}

TEST(Utilization, IsOfAllGpusTogether) {
  const MeasuredStep step{.model_flops = 8'000, .hardware_flops = 8'000, .seconds = 2, .gpus = 4};
  const Utilization u = *MeasureUtilization(step, {2'000, "two thousand"});
  EXPECT_EQ(u.model_rate, 1'000);
  EXPECT_EQ(u.mfu, 0.5);
}

TEST(Utilization, IsNotInvented) {
  const MeasuredStep step{.model_flops = 1, .hardware_flops = 1, .seconds = 1};
  EXPECT_FALSE(MeasureUtilization(step, Peak()).has_value());
  EXPECT_FALSE(MeasureUtilization({.model_flops = 1}, H100(false)).has_value());
  EXPECT_FALSE(MeasureUtilization({.seconds = 1, .gpus = 0}, H100(false)).has_value());
}

// 6·70e9 FLOPs a token, 15e12 tokens, 1,024 H100 at half their peak: 6.3e24 FLOPs, 143.9 days; with
// the peak rounded to 989, 144.0.
TEST(Utilization, TimeOfARun) {
  RunQuestion question{.step_flops = Count(6) * 70'000'000'000 * 2048,
                       .step_tokens = 2048,
                       .tokens = 15'000'000'000'000,
                       .gpus = 1024,
                       .peak = H100(false),
                       .mfu = 0.5};
  const RunTime run = *PredictRun(question);
  EXPECT_EQ(ToDecimal(run.flops), "6300000000000000000000000");
  EXPECT_NEAR(run.seconds / 86400, 143.9, 0.05);
  EXPECT_DOUBLE_EQ(run.gpu_seconds, run.seconds * 1024);
  EXPECT_DOUBLE_EQ(run.rate, 1024 * 989.5e12 * 0.5);
  question.peak = {989e12, "989"};
  EXPECT_NEAR(PredictRun(question)->seconds / 86400, 144.0, 0.05);
}

TEST(Utilization, ARunNeedNotBeWholeSteps) {
  const Peak peak{10, "ten"};
  // 7 FLOPs for 3 tokens: 5 tokens are 35 / 3.
  EXPECT_EQ(PredictRun({7, 3, 5, 1, peak, 1})->flops, 11);
  EXPECT_FALSE(PredictRun({7, 3, 5, 1, peak, 0}).has_value());
  EXPECT_FALSE(PredictRun({7, 0, 5, 1, peak, 1}).has_value());
  EXPECT_FALSE(PredictRun({7, 3, 5, 1, Peak(), 1}).has_value());
  EXPECT_FALSE(PredictRun({absl::Int128Max(), 1, 2, 1, peak, 1}).has_value());
}

}  // namespace
}  // namespace tally
