#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/tensor/gemm.h"
#include "tally/tests/tensor/gemm_problem.h"

namespace tally {
namespace {

using namespace gemm_problem;
using ::testing::ElementsAre;

// What a BLAS is told to do: column-major, element (r, s) at r + s·ld.
Block ByCall(const Problem& p, const GemmCall& g) {
  Block out = p.c;
  const Block &a = p.b, &b = p.a;
  for (int64_t x = 0; x < g.batch[0]; ++x) {
    for (int64_t y = 0; y < g.batch[1]; ++y) {
      const int64_t a0 = x * g.a.batch_stride[0] + y * g.a.batch_stride[1];
      const int64_t b0 = x * g.b.batch_stride[0] + y * g.b.batch_stride[1];
      const int64_t c0 = x * g.c_batch_stride[0] + y * g.c_batch_stride[1];
      for (int64_t r = 0; r < g.rows; ++r) {
        for (int64_t s = 0; s < g.cols; ++s) {
          double sum = 0;
          for (int64_t l = 0; l < g.k; ++l) {
            sum += a.Get(a0 + (g.a.transposed ? l + r * g.a.ld : r + l * g.a.ld)) *
                   b.Get(b0 + (g.b.transposed ? s + l * g.b.ld : l + s * g.b.ld));
          }
          const int64_t at = c0 + r + s * g.ldc;
          double value = g.alpha * sum;
          if (g.beta != 0) value += g.beta * p.c.Get(at);
          if (g.bias != nullptr) value += p.bias.Get(r);
          out.Set(at, value);
        }
      }
    }
  }
  return out;
}

TEST(ToColumnMajor, SwapsOperandsAndExtents) {
  int a, b, c, bias;
  GemmArgs args;
  args.m = 2, args.n = 3, args.k = 5;
  args.batch = {7, 11};
  args.a = {&a, DType::kBF16, 50, true, {100, 200}};
  args.b = {&b, DType::kF16, 60, false, {300, 400}};
  args.c = {&c, DType::kF32, 70, {500, 600}};
  args.alpha = 2, args.beta = 0.5;
  args.bias = &bias;
  const GemmCall call = ToColumnMajor(args);
  EXPECT_EQ(call.rows, 3);
  EXPECT_EQ(call.cols, 2);
  EXPECT_EQ(call.k, 5);
  EXPECT_THAT(call.batch, ElementsAre(7, 11));
  EXPECT_EQ(call.a.data, &b);
  EXPECT_EQ(call.a.dtype, DType::kF16);
  EXPECT_EQ(call.a.ld, 60);
  EXPECT_FALSE(call.a.transposed);
  EXPECT_THAT(call.a.batch_stride, ElementsAre(300, 400));
  EXPECT_EQ(call.b.data, &a);
  EXPECT_EQ(call.b.dtype, DType::kBF16);
  EXPECT_EQ(call.b.ld, 50);
  EXPECT_TRUE(call.b.transposed);
  EXPECT_THAT(call.b.batch_stride, ElementsAre(100, 200));
  EXPECT_EQ(call.c, &c);
  EXPECT_EQ(call.c_dtype, DType::kF32);
  EXPECT_EQ(call.ldc, 70);
  EXPECT_THAT(call.c_batch_stride, ElementsAre(500, 600));
  EXPECT_EQ(call.alpha, 2);
  EXPECT_EQ(call.beta, 0.5);
  EXPECT_EQ(call.compute, DType::kF32);
  EXPECT_EQ(call.bias, &bias);
}

TEST(ToColumnMajor, RaisesLeadingDimensionsToTheMinimum) {
  GemmArgs args;
  args.m = 1, args.n = 3, args.k = 5;
  args.a.ld = 1, args.b.ld = 0, args.c.ld = 1;
  args.b.transposed = true;
  const GemmCall call = ToColumnMajor(args);
  EXPECT_EQ(call.a.ld, 5);
  EXPECT_EQ(call.b.ld, 5);
  EXPECT_EQ(call.ldc, 3);
}

TEST(ToColumnMajor, MergesBatchExtentsThatStepEvenly) {
  GemmArgs args;
  args.m = args.n = args.k = 2;
  args.batch = {3, 4};
  args.a.batch_stride = {16, 4};
  args.b.batch_stride = {0, 0};
  args.c.batch_stride = {16, 4};
  const GemmCall call = ToColumnMajor(args);
  EXPECT_THAT(call.batch, ElementsAre(1, 12));
  EXPECT_THAT(call.a.batch_stride, ElementsAre(0, 0));
  EXPECT_THAT(call.b.batch_stride, ElementsAre(0, 4));
  EXPECT_THAT(call.c_batch_stride, ElementsAre(0, 4));
}

TEST(ToColumnMajor, KeepsBatchExtentsThatDoNot) {
  GemmArgs args;
  args.m = args.n = args.k = 2;
  args.batch = {3, 4};
  args.a.batch_stride = {16, 4};
  args.b.batch_stride = {0, 4};
  args.c.batch_stride = {16, 4};
  EXPECT_THAT(ToColumnMajor(args).batch, ElementsAre(3, 4));
}

TEST(ToColumnMajor, MovesALoneOuterExtentInside) {
  GemmArgs args;
  args.m = args.n = args.k = 2;
  args.batch = {3, 1};
  args.a.batch_stride = {8, 77};
  args.c.batch_stride = {4, 99};
  const GemmCall call = ToColumnMajor(args);
  EXPECT_THAT(call.batch, ElementsAre(1, 3));
  EXPECT_THAT(call.b.batch_stride, ElementsAre(0, 8));
  EXPECT_THAT(call.c_batch_stride, ElementsAre(0, 4));
}

TEST(ToColumnMajor, DescribesTheSameProduct) {
  for (Case t : InAllForms({.m = 3,
                .n = 4,
                .k = 5,
                .pad = 2,
                .batch = {2, 3},
                .repeat_b = {true, false},
                .beta = 0.5,
                .bias = true})) {
    SCOPED_TRACE(t.ToString());
    const Problem p(t);
    ExpectSame(ByCall(p, ToColumnMajor(p.args)), ByTripleLoop(p));
  }
}

TEST(ChooseGemmLibrary, DoesNotLookAtAddresses) {
  GemmArgs args;
  args.m = 2048, args.n = 1152, args.k = 384;
  args.b.transposed = true;
  const GemmLibrary first = ChooseGemmLibrary(ToColumnMajor(args));
  const float element = 0;
  args.a.data = args.b.data = &element;
  EXPECT_EQ(ChooseGemmLibrary(ToColumnMajor(args)), first);
}

TEST(ChooseGemmLibrary, ObeysForce) {
  const GemmCall call = ToColumnMajor({.m = 64, .n = 64, .k = 64});
  ForceGemmLibrary(true, GemmLibrary::kCblas);
  EXPECT_EQ(ChooseGemmLibrary(call), GemmLibrary::kCblas);
  ForceGemmLibrary(false, GemmLibrary::kCblas);
}

}  // namespace
}  // namespace tally
