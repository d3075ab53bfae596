#include "tally/analysis/fusion.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tally/autograd/tape.h"
#include "tally/ops/binary.h"
#include "tally/ops/linear.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"
#include "tally/tests/analysis/gpt_step.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Tensor Zeros(const Shape& shape, DType dtype = DType::kF32) {
  return Tensor::Zeros({dtype, shape}, kMeta);
}

template <typename F>
FusionReport Fused(const F& run) {
  Tape tape;
  const auto kept = run();
  return FuseElementwise(tape.Finish());
}

// relu, times 2, plus y: one kernel that reads x and y and writes the sum, 400 bytes each.
TEST(Fusion, OfAChainReadsAndWritesItsEndsOnly) {
  const Tensor x = Zeros({100}), y = Zeros({100});
  const FusionReport fused = Fused([&] { return Add(Mul(Relu(x), 2), y); });
  ASSERT_EQ(fused.kernels.size(), 1);
  const FusedKernel& kernel = fused.kernels[0];
  EXPECT_THAT(kernel.nodes, ElementsAre(0, 1, 2));
  EXPECT_EQ(kernel.cost.bytes_read, 800);
  EXPECT_EQ(kernel.cost.bytes_written, 400);
  EXPECT_EQ(kernel.bytes_apart, 800 + 800 + 1200);
  EXPECT_EQ(kernel.cost.flops.other, 300);
  EXPECT_EQ(fused.bytes_saved, 2800 - 1200);
  EXPECT_EQ(fused.fused_nodes, 3);
}

// The value in the middle is read after the kernel too, or alive at the end: then it is written.
TEST(Fusion, WritesWhatIsStillNeeded) {
  const Tensor x = Zeros({100});
  Tensor kept;
  const FusionReport alive = Fused([&] {
    kept = Relu(x);
    return Mul(kept, 2);
  });
  ASSERT_EQ(alive.kernels.size(), 1);
  EXPECT_EQ(alive.kernels[0].cost.bytes_read, 400);
  EXPECT_EQ(alive.kernels[0].cost.bytes_written, 800);
  // sum is no elementwise op: it reads the middle and the end, after the kernel.
  const FusionReport read = Fused([&] {
    const Tensor middle = Relu(x);
    const Tensor end = Mul(middle, 2);
    return std::vector<Tensor>{Sum(middle), Sum(end)};
  });
  ASSERT_EQ(read.kernels.size(), 1);
  EXPECT_EQ(read.kernels[0].cost.bytes_written, 800);
}

// What an outside node makes of the middle may be needed by the end: no kernel holds both.
TEST(Fusion, EndsWhereAnotherNodeReads) {
  const Tensor x = Zeros({100});
  const FusionReport fused = Fused([&] {
    const Tensor middle = Relu(x);
    const Tensor sum = Sum(middle);
    return Add(middle, sum);
  });
  EXPECT_THAT(fused.kernels, IsEmpty());
  EXPECT_EQ(fused.fused_nodes, 0);
}

TEST(Fusion, JoinsTwoBranchesAndRowsOfOneLength) {
  const Tensor x = Zeros({8, 16}), y = Zeros({8, 16});
  const Tensor weight = Zeros({16}), bias = Zeros({16});
  // Two branches, their sum, and a norm of its rows of 16: one kernel. Reads x, y, weight and bias.
  const FusionReport one = Fused([&] { return LayerNorm(Add(Exp(x), Tanh(y)), weight, bias); });
  ASSERT_EQ(one.kernels.size(), 1);
  EXPECT_EQ(one.kernels[0].nodes.size(), 4);
  EXPECT_EQ(one.kernels[0].cost.bytes_read, (2 * 8 * 16 + 2 * 16) * 4);
  // A softmax over rows of 32 cannot follow one over rows of 16 in one kernel.
  const FusionReport other = Fused([&] { return Softmax(Reshape(Softmax(Exp(x)), {4, 32})); });
  ASSERT_EQ(other.kernels.size(), 1);
  EXPECT_THAT(other.kernels[0].nodes, ElementsAre(0, 1));
}

TEST(Fusion, GoesThroughReshapesAndNotThroughTransposes) {
  const Tensor x = Zeros({8, 8});
  EXPECT_EQ(Fused([&] { return Tanh(Reshape(Exp(x), {64})); }).fused_nodes, 2);
  EXPECT_EQ(Fused([&] { return Tanh(Transpose(Exp(x), 0, 1)); }).fused_nodes, 0);
  // A value and its transpose in one node: the kernel of the first must have ended.
  const FusionReport both = Fused([&] {
    const Tensor y = Exp(x);
    return Add(y, Transpose(y, 0, 1));
  });
  EXPECT_THAT(both.kernels, IsEmpty());
}

// An in-place write between two nodes: the first must have read before it.
TEST(Fusion, DoesNotMoveAReadOverAWrite) {
  const Tensor x = Zeros({100});
  const FusionReport fused = Fused([&] {
    const Tensor y = Relu(x);
    const Tensor big = Zeros({100});
    FillInPlace(x, 1);
    return Add(y, big);
  });
  EXPECT_EQ(fused.fused_nodes, 0);
}

// Properties of a whole training step, checked over its nodes and values by their definitions.
TEST(Fusion, OfATrainingStepKeepsOrderAndMovesNoMore) {
  const Graph graph =
      GptStep({.seq = 32, .vocab = 100, .layers = 2, .width = 16, .heads = 2}).Record();
  const FusionReport fused = FuseElementwise(graph);
  EXPECT_GT(fused.fused_nodes, 8);
  std::set<NodeId> seen;
  for (size_t k = 0; k < fused.kernels.size(); ++k) {
    const FusedKernel& kernel = fused.kernels[k];
    EXPECT_LT(kernel.cost.bytes(), kernel.bytes_apart);
    const std::set<NodeId> members(kernel.nodes.begin(), kernel.nodes.end());
    Count written = 0;
    for (NodeId n : kernel.nodes) {
      EXPECT_TRUE(seen.insert(n).second) << n;
      EXPECT_EQ(fused.kernel_of[n], static_cast<int32_t>(k));
      EXPECT_EQ(CostOf(graph, graph.nodes[n]).matmul, 0);
    }
    // No node outside reads, directly or through views, from the kernel before its last node.
    std::set<ValueId> made;
    for (NodeId n = kernel.nodes.front(); n < static_cast<NodeId>(graph.nodes.size()); ++n) {
      const Node& node = graph.nodes[n];
      bool reads = false;
      for (ValueId v : graph.in(node)) reads |= made.count(v) > 0;
      const bool view = node.op->kind == OpKind::kView;
      if (members.count(n) > 0 || (view && reads)) {
        for (ValueId v : graph.out(node)) made.insert(v);
      } else if (reads) {
        EXPECT_GT(n, kernel.nodes.back());
      }
    }
    for (NodeId n : kernel.nodes) written += CostLineOf(graph, graph.nodes[n]).bytes_written;
    EXPECT_LE(kernel.cost.bytes_written, written);
  }
}

}  // namespace
}  // namespace tally
