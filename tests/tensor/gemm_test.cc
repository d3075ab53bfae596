#include "tally/tensor/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tally/tests/tensor/gemm_problem.h"

namespace tally {
namespace {

using namespace gemm_problem;

// Every test of GemmCpu runs with the rule and with each library forced.
enum class Choice { kRule, kOneDnn, kCblas };

class GemmCpuTest : public testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    if (GetParam() == Choice::kOneDnn) ForceGemmLibrary(true, GemmLibrary::kOneDnn);
    if (GetParam() == Choice::kCblas) ForceGemmLibrary(true, GemmLibrary::kCblas);
  }
  void TearDown() override { ForceGemmLibrary(false, GemmLibrary::kCblas); }
};

std::string NameOfChoice(const testing::TestParamInfo<Choice>& info) {
  return info.param == Choice::kRule     ? "ByRule"
         : info.param == Choice::kOneDnn ? "OneDnn"
                                         : "Cblas";
}
INSTANTIATE_TEST_SUITE_P(Libraries, GemmCpuTest,
                         testing::Values(Choice::kRule, Choice::kOneDnn, Choice::kCblas),
                         NameOfChoice);

TEST_P(GemmCpuTest, MultipliesInAllFormsAndSizes) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const int64_t m : {1, 2, 17}) {
      for (const int64_t n : {1, 3, 33}) {
        for (const int64_t k : {1, 7, 65}) {
          for (const Case& t :
               InAllForms({.m = m, .n = n, .k = k, .a = dtype, .b = dtype, .c = dtype})) {
            ExpectProduct(t);
          }
        }
      }
    }
  }
}

TEST_P(GemmCpuTest, MultipliesLargeMatrices) {
  for (const Case& t : InAllForms({.m = 130, .n = 257, .k = 300, .bias = true})) ExpectProduct(t);
}

TEST_P(GemmCpuTest, LeavesTheGapBetweenRowsAlone) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const Case& t :
         InAllForms({.m = 5, .n = 6, .k = 7, .a = dtype, .b = dtype, .c = dtype, .pad = 3})) {
      ExpectProduct(t);
    }
  }
}

TEST_P(GemmCpuTest, ScalesByAlphaAndBetaAndAddsTheBias) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const double beta : {0.0, 1.0, 0.5}) {
      for (const bool bias : {false, true}) {
        ExpectProduct({.m = 9,
                       .n = 10,
                       .k = 11,
                       .a = dtype,
                       .b = dtype,
                       .c = dtype,
                       .alpha = 2,
                       .beta = beta,
                       .bias = bias});
      }
    }
  }
}

TEST_P(GemmCpuTest, DoesNotReadTheOutputWhenBetaIsZero) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const int64_t k : {0, 4, 300}) {
      Problem p({.m = 3, .n = 5, .k = k, .a = dtype, .b = dtype, .c = dtype});
      const Block want = ByTripleLoop(p);
      p.c.Fill(std::numeric_limits<double>::quiet_NaN());
      GemmCpu(p.args);
      ExpectSame(p.c, want);
    }
  }
}

TEST_P(GemmCpuTest, TakesTwoBatchExtents) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    for (const Case& t : InAllForms({.m = 6,
                         .n = 5,
                         .k = 4,
                         .a = dtype,
                         .b = dtype,
                         .c = dtype,
                         .pad = 1,
                         .batch = {3, 4},
                         .beta = 1,
                         .bias = true})) {
      ExpectProduct(t);
    }
  }
}

TEST_P(GemmCpuTest, RepeatsAnOperandWithStrideZero) {
  for (const std::array<bool, 2> repeat :
       {std::array<bool, 2>{true, true}, {true, false}, {false, true}}) {
    ExpectProduct({.m = 6, .n = 5, .k = 4, .batch = {3, 4}, .repeat_a = repeat});
    ExpectProduct({.m = 6, .n = 5, .k = 4, .batch = {3, 4}, .repeat_b = repeat});
  }
}

TEST_P(GemmCpuTest, TakesManySmallMatrices) {
  for (const Case& t : InAllForms({.m = 64, .n = 65, .k = 16, .batch = {2, 5}})) ExpectProduct(t);
}

TEST_P(GemmCpuTest, TakesAFewLargeMatrices) {
  ExpectProduct({.m = 200, .n = 190, .k = 210, .batch = {2, 1}});
}

TEST_P(GemmCpuTest, DoesNothingForAnEmptyOutput) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    ExpectProduct({.m = 0, .n = 3, .k = 2, .a = dtype, .b = dtype, .c = dtype});
    ExpectProduct({.m = 3, .n = 0, .k = 2, .a = dtype, .b = dtype, .c = dtype, .bias = true});
    ExpectProduct({.m = 3, .n = 2, .k = 2, .a = dtype, .b = dtype, .c = dtype, .batch = {0, 2}});
  }
}

TEST_P(GemmCpuTest, ScalesByBetaAndAddsTheBiasWhenThereIsNothingToSum) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const double beta : {0.0, 1.0, 0.5}) {
      ExpectProduct({.m = 3,
                     .n = 4,
                     .k = 0,
                     .a = dtype,
                     .b = dtype,
                     .c = dtype,
                     .batch = {1, 2},
                     .beta = beta,
                     .bias = true});
    }
  }
}

TEST_P(GemmCpuTest, GivesTheSameBitsEveryTime) {
  Problem p({.m = 130, .n = 140, .k = 150});
  for (int64_t i = 0; i < p.a.size(); ++i) p.a.Set(i, std::sin(static_cast<double>(i)));
  GemmCpu(p.args);
  const Block first = p.c;
  GemmCpu(p.args);
  ExpectSame(p.c, first);
}

TEST_P(GemmCpuTest, WorksInsideAParallelRegion) {
  constexpr int kThreads = 3;
  std::vector<Problem> problems;
  for (int i = 0; i < kThreads; ++i) problems.emplace_back(Case{.m = 65, .n = 66, .k = 67});
  const Block want = ByTripleLoop(problems[0]);
  for (Problem& p : problems) {
    p.args.a.data = p.a.data(), p.args.b.data = p.b.data(), p.args.c.data = p.c.data();
  }
#pragma omp parallel for num_threads(kThreads)
  for (int i = 0; i < kThreads; ++i) GemmCpu(problems[i].args);
  for (const Problem& p : problems) ExpectSame(p.c, want);
}

TEST(GemmCpu, TakesEveryNarrowTypeInAllForms) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3FN, DType::kF8E5M2}) {
    for (const DType out : {dtype, DType::kF32}) {
      for (const Case& t :
           InAllForms({.m = 7, .n = 9, .k = 12, .a = dtype, .b = dtype, .c = out})) {
        ExpectProduct(t);
      }
    }
  }
}

TEST(GemmCpu, TakesOperandsOfTwoTypes) {
  ExpectProduct(
      {.m = 7, .n = 9, .k = 12, .a = DType::kBF16, .b = DType::kF8E4M3FN, .c = DType::kF16});
}

TEST(GemmCpu, TakesNarrowMatricesOfManyPanels) {
  for (const Case& t : InAllForms({.m = 70,
                       .n = 515,
                       .k = 260,
                       .a = DType::kBF16,
                       .b = DType::kBF16,
                       .c = DType::kBF16,
                       .beta = 1,
                       .bias = true})) {
    ExpectProduct(t);
  }
}

TEST(GemmCpu, SumsNarrowProductsInFloat) {
  // 256 + 1 is not a bf16: a sum kept in bf16 would stay at 256 for ever.
  Problem p({.m = 1, .n = 1, .k = 512, .a = DType::kBF16, .b = DType::kBF16, .c = DType::kBF16});
  p.a.Fill(1);
  p.b.Fill(1);
  GemmCpu(p.args);
  EXPECT_EQ(p.c.Get(0), 512);
}

TEST(GemmCpu, RoundsNarrowResultsOnceToTheNearestEven) {
  // k ones: bf16 has 8 significant bits, so 257 lies half way between 256 and 258.
  for (const auto& [k, want] : {std::pair<int64_t, double>{257, 256}, {259, 260}, {258, 258}}) {
    Problem p({.m = 1, .n = 1, .k = k, .a = DType::kBF16, .b = DType::kBF16, .c = DType::kBF16});
    p.a.Fill(1);
    p.b.Fill(1);
    GemmCpu(p.args);
    EXPECT_EQ(p.c.Get(0), want) << k;
  }
}

TEST(GemmCpu, AddsTheBiasBeforeItRounds) {
  // 257 + 1 = 258 exactly; rounding 257 first would give 256 + 1, which rounds to 256.
  Problem p({.m = 1,
             .n = 1,
             .k = 257,
             .a = DType::kBF16,
             .b = DType::kBF16,
             .c = DType::kBF16,
             .bias = true});
  p.a.Fill(1);
  p.b.Fill(1);
  p.bias.Fill(1);
  GemmCpu(p.args);
  EXPECT_EQ(p.c.Get(0), 258);
}

TEST(GemmCpu, WidensInfinityNanAndSubnormals) {
  const double inf = std::numeric_limits<double>::infinity();
  Problem p({.m = 3, .n = 1, .k = 1, .a = DType::kF16, .b = DType::kF16, .c = DType::kF16});
  p.b.Fill(1);
  p.a.Set(0, -inf);
  p.a.Set(1, std::ldexp(1.0, -24));  // the smallest f16
  p.a.Set(2, std::nan(""));
  GemmCpu(p.args);
  EXPECT_EQ(p.c.Get(0), -inf);
  EXPECT_EQ(p.c.Get(1), std::ldexp(1.0, -24));
  EXPECT_TRUE(std::isnan(p.c.Get(2)));
}

}  // namespace
}  // namespace tally
