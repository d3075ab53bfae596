// What the gradients of views, joins and look-ups record and cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"

namespace tally {
namespace {

using ::testing::ElementsAre;

// Names of the backward nodes of these ops, in order.
std::vector<std::string> Backward(const Graph& graph, const std::vector<std::string>& ops) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kBackward) continue;
    for (const std::string& op : ops) {
      if (op == node.op->name) names.push_back(op);
    }
  }
  return names;
}

TEST(SplitGradient, IsOneConcatenation) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  tape.Watch(x);
  const Tensors parts = Split(x, {1, 2}, 1);
  const Tensor loss = Sum(parts[0] * 10.0) + Sum(Square(parts[1]));
  const Tensor dx = tape.Gradient(loss, x);
  EXPECT_THAT(dx.ToVector<float>(), ElementsAre(10, 4, 6, 10, 10, 12));
  EXPECT_THAT(Backward(tape.graph(), {"cat", "slice_grad", "add", "add_"}), ElementsAre("cat"));
}

TEST(SplitGradient, IsZeroForAPartThatNobodyUsed) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4}, {4});
  Tape tape;
  tape.Watch(x);
  const Tensor dx = tape.Gradient(Sum(Split(x, {1, 2, 1}, 0)[1]), x);
  EXPECT_THAT(dx.ToVector<float>(), ElementsAre(0, 1, 1, 0));
}

TEST(ExpandGradient, SumsWhatWasStretched) {
  const Tensor x = Tensor::FromVector<float>({1, 2}, {2, 1});
  const Tensor w = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  tape.Watch(x);
  const Tensor dx = tape.Gradient(Sum(Expand(x, {2, 3}) * w), x);
  EXPECT_THAT(dx.ToVector<float>(), ElementsAre(1 + 2 + 3, 4 + 5 + 6));
}

// But for the last node, the copy that makes the gradient the caller's own.
TEST(ViewGradients, AreViewsWithoutCost) {
  const Tensor x = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Reshape(Unsqueeze(Transpose(x, 0, 1), 0), {3, 2});
  const Tensor dx =
      tape.Gradient(y, x, {.seed = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {3, 2})});
  EXPECT_THAT(dx.ToVector<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
  std::vector<std::string> names;
  for (const Node& node : tape.graph().nodes) names.push_back(node.op->name);
  EXPECT_THAT(names, ElementsAre("transpose", "unsqueeze", "reshape", "reshape", "squeeze",
                                 "transpose", "contiguous"));
}

// A table of V=10 rows of d=4 that is both embedding and head, T=3 positions:
// head forward 2·3·4·10 = 240, backward twice that; the look-up costs nothing forward and one add
// for each of 3·4 = 12 elements backward; merging both gradients of the table 10·4 = 40 adds.
TEST(TiedTable, CostsOneScatterAndOneMerge) {
  const Tensor table = Tensor::Empty({DType::kF32, {10, 4}}, kMeta);
  const Tensor ids = Tensor::Empty({DType::kI64, {3}}, kMeta);
  Tape tape;
  tape.Watch(table);
  const Tensor logits = MatMul(GatherRows(table, ids), table, {.b = true});
  const Tensor dy = Tensor::Empty(logits.spec(), kMeta);
  tape.Gradient(logits, table, {.seed = dy});
  Cost forward, backward;
  Count scatter = 0;
  for (const Node& node : tape.graph().nodes) {
    const Cost cost = CostOf(tape.graph(), node);
    (node.phase == Phase::kForward ? forward : backward) += cost;
    if (std::string(node.op->name) == "scatter_add_rows") scatter += cost.other;
  }
  EXPECT_EQ(forward.matmul, 240);
  EXPECT_EQ(forward.other, 0);
  EXPECT_EQ(backward.matmul, 480);
  EXPECT_EQ(scatter, 12);
  EXPECT_EQ(backward.other, 12 + 40);
}

TEST(GatherGradient, KeepsTheIdsAndNotTheTable) {
  const Tensor table = Tensor::Empty({DType::kF32, {10, 4}}, kMeta);
  const Tensor ids = Tensor::Empty({DType::kI64, {3}}, kMeta);
  Tape tape;
  tape.Watch(table);
  GatherRows(table, ids);
  EXPECT_EQ(tape.SavedBytes(), 3 * 8);
}

TEST(GatherRows, RecordsNothingWhenAnIndexIsWrong) {
  const Tensor table = Tensor::Zeros({DType::kF32, {2, 2}});
  Tape tape;
  EXPECT_THROW(GatherRows(table, Tensor::FromVector<int64_t>({2}, {1})), Error);
  EXPECT_TRUE(tape.graph().nodes.empty());
}

}  // namespace
}  // namespace tally
