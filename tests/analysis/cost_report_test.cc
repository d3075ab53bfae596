#include "tally/analysis/cost_report.h"

#include <gtest/gtest.h>

#include "graph_builder.h"
#include "tally/autograd/tape.h"
#include "tally/ops/linear.h"
#include "tally/ops/matmul.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

Tensor Meta(const Shape& shape, DType dtype = DType::kF32) {
  return Tensor::Empty({dtype, shape}, kMeta);
}

TEST(Cost, HasTheIntensityOfASquareMatmul) {
  Tape tape;
  MatMul(Meta({64, 64}), Meta({64, 64}));
  const CostReport report = AnalyzeCost(tape.Finish());
  const CostLine total = report.cost.total();
  EXPECT_EQ(total.flops.matmul, 2 * 64 * 64 * 64);
  EXPECT_EQ(total.bytes_read, 2 * 64 * 64 * 4);
  EXPECT_EQ(total.bytes_written, 64 * 64 * 4);
  EXPECT_DOUBLE_EQ(*total.intensity(), 524288.0 / 49152.0);
}

TEST(Cost, ReadsAnInputThatIsUsedTwiceOnce) {
  Tape tape;
  const Tensor x = Meta({8, 8});
  MatMul(x, x);
  EXPECT_EQ(AnalyzeCost(tape.Finish()).cost.total().bytes_read, 8 * 8 * 4);
}

TEST(Cost, OfViewsIsNothing) {
  Tape tape;
  Transpose(Meta({8, 4}), 0, 1);
  const CostLine total = AnalyzeCost(tape.Finish()).cost.total();
  EXPECT_EQ(total.nodes, 1);
  EXPECT_EQ(total.bytes(), 0);
  EXPECT_EQ(total.flops.total(), 0);
  EXPECT_FALSE(total.intensity().has_value());
}

TEST(Cost, OfAVectorProductCountsItsElements) {
  Tape tape;
  MatMul(Meta({8}), Meta({8}));
  EXPECT_EQ(AnalyzeCost(tape.Finish()).model_flops(), 16);
}

TEST(Cost, OfAMatrixTimesAVectorCountsRows) {
  Tape tape;
  MatMul(Meta({4, 8}), Meta({8}));
  EXPECT_EQ(AnalyzeCost(tape.Finish()).model_flops(), 64);
}

TEST(Cost, AddsUpOverTheScopeTree) {
  Tape tape;
  const Tensor x = Meta({4, 4});
  {
    const Scope outer("h.0");
    MatMul(x, x);
    const Scope inner("attn");
    MatMul(x, x);
  }
  const Graph graph = tape.Finish();
  const CostReport report = AnalyzeCost(graph);
  ASSERT_EQ(report.by_scope.size(), 3u);
  EXPECT_EQ(report.by_scope[0].own.total().flops.matmul, 0);
  EXPECT_EQ(report.by_scope[0].total.total().flops.matmul, 2 * 128);
  EXPECT_EQ(report.by_scope[1].own.total().flops.matmul, 128);
  EXPECT_EQ(report.by_scope[1].total.total().flops.matmul, 2 * 128);
  EXPECT_EQ(report.by_scope[2].total.total().flops.matmul, 128);
}

TEST(Cost, KeepsPhasesOpsAndDTypesApart) {
  Tape tape;
  MatMul(Meta({4, 4}), Meta({4, 4}));
  {
    const ScopedPhase phase(Phase::kRecompute, 0);
    MatMul(Meta({4, 4}, DType::kBF16), Meta({4, 4}, DType::kBF16));
  }
  const CostReport report = AnalyzeCost(tape.Finish());
  EXPECT_EQ(report.cost[Phase::kForward].flops.matmul, 128);
  EXPECT_EQ(report.cost[Phase::kRecompute].flops.matmul, 128);
  EXPECT_EQ(report.model_flops(), 128);
  EXPECT_EQ(report.hardware_flops(), 256);
  ASSERT_EQ(report.by_op.size(), 1u);
  EXPECT_EQ(report.by_op[0].op, "matmul");
  EXPECT_EQ(report.by_op[0].cost.total().nodes, 2);
  ASSERT_EQ(report.by_dtype.size(), 2u);
  EXPECT_EQ(report.by_dtype[1].dtype, DType::kBF16);
  EXPECT_EQ(report.by_dtype[1].cost.total().bytes_read, 2 * 16 * 2);
}

TEST(Cost, Of405BIsExactBeyond64Bits) {
  // 1,024 products of 2 * 2^20 * 2^20 * 2^15: 2^66 FLOPs.
  Tape tape;
  const Tensor a = Meta({1 << 20, 1 << 20}), b = Meta({1 << 20, 1 << 15});
  for (int i = 0; i < 1024; ++i) MatMul(a, b);
  EXPECT_EQ(AnalyzeCost(tape.Finish()).model_flops(), Count(1) << 66);
}

TEST(Cost, DoesNotReadWhatIsOnlyOverwritten) {
  static const OpDef fill = {.name = "test_fill",
                             .kind = OpKind::kUpdate,
                             .infer = UnitInfer,
                             .cost = UnitCost,
                             .writes = {0},
                             .overwrites = {0}};
  GraphBuilder b;
  b.Node(fill, {b.Input({DType::kF32, {10}})}, {DType::kF32, {10}}, {});
  const CostLine line = CostLineOf(b.g, b.g.nodes[0]);
  EXPECT_EQ(line.bytes_read, 0);
  EXPECT_EQ(line.bytes_written, 40);
}

// The traps of units: a multiply-add is two FLOPs, not one; a bias is additions and no contraction;
// its gradient is a sum of rows. x [4,8], W [8,16]: 512 multiply-adds.
TEST(Cost, ALinearLayerCountsMultiplyAddsTwiceAndItsBiasApart) {
  const Tensor x = Tensor::Zeros({DType::kF32, {4, 8}}, kMeta);
  const Tensor w = Tensor::Zeros({DType::kF32, {8, 16}}, kMeta);
  const Tensor bias = Tensor::Zeros({DType::kF32, {16}}, kMeta);
  const Tensor dy = Tensor::Zeros({DType::kF32, {4, 16}}, kMeta);
  Tape tape;
  tape.Watch({x, w, bias});
  const Tensor y = Linear(x, w, bias, false);
  tape.Gradient(y, {x, w, bias}, {.seed = dy});
  const CostReport report = AnalyzeCost(tape.Finish());
  EXPECT_EQ(report.cost[Phase::kForward].flops.matmul, 2 * 512);
  EXPECT_EQ(report.cost[Phase::kForward].flops.other, 4 * 16);
  EXPECT_EQ(report.cost[Phase::kBackward].flops.matmul, 2 * 1'024);
  EXPECT_EQ(report.cost[Phase::kBackward].flops.other, 3 * 16);
  EXPECT_EQ(report.model_flops(), 3'072);
}

}  // namespace
}  // namespace tally
