#include "tally/analysis/residuals.h"

#include <gtest/gtest.h>

#include "tally/analysis/simulate.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/ops/binary.h"
#include "tally/ops/copy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/linear.h"
#include "tally/ops/matmul.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/select.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

Tensor Input(const Shape& shape, DType dtype = DType::kF32) {
  return Tensor::Empty({dtype, shape}, kMeta);
}
Tensor Parameter(const Shape& shape, DType dtype = DType::kF32) {
  const Tensor t = Input(shape, dtype);
  Declare(t, Origin::kParameter, "w");
  return t;
}

ResidualReport Residuals(const Graph& graph) {
  EXPECT_EQ(Verify(graph), absl::OkStatus());
  return ListResiduals(graph);
}

// 16 -> 64 -> 16 on 8 rows, no bias.
ResidualReport Mlp(Tensor (*activation)(const Tensor&)) {
  const Tensor x = Input({8, 16}), up = Parameter({64, 16}), down = Parameter({16, 64});
  Tape tape;
  tape.Watch({up, down});
  tape.Gradient(Sum(Linear(activation(Linear(x, up)), down)), {up, down});
  return Residuals(tape.Finish());
}

TEST(Residuals, OfAnMlpWithGelu) {
  // x 8·16, what gelu reads 8·64 and what it makes 8·64, four bytes each.
  const ResidualReport report = Mlp(Gelu);
  EXPECT_EQ(report.retained, (8 * 16 + 8 * 64 + 8 * 64) * 4);
  EXPECT_EQ(report.retained, 4608);
  EXPECT_EQ(report.retained_inputs, 8 * 16 * 4);
}

TEST(Residuals, OfAnMlpWithReluShareItsOutput) { EXPECT_EQ(Mlp(Relu).retained, 2560); }

TEST(Residuals, OfForwardWithoutWatchingAreNothing) {
  Tape tape;
  Sum(Gelu(Input({8, 16})));
  EXPECT_EQ(Residuals(tape.Finish()).retained, 0);
}

// A (1024, 2304) result cut in three, the parts each read by a matmul.
ResidualReport FusedQkv(bool only_k) {
  const Tensor x = Parameter({1024, 2304});
  const Tensor y = Parameter({1024, 8});
  Tape tape;
  tape.Watch({x, y});
  const Tensor qkv = Mul(x, 1.0);
  Tensor sum;
  for (int i = 0; i < 3; ++i) {
    if (only_k && i != 1) continue;
    const Tensor part = MatMul(Slice(qkv, 1, 768 * i, 768 * (i + 1)), y, {.a = true});
    sum = sum.defined() ? Add(sum, part) : part;
  }
  Sum(sum);
  return Residuals(tape.Finish());
}

TEST(Residuals, OfAFusedQkvCountItsStorageOnce) {
  const ResidualReport report = FusedQkv(/*only_k=*/false);
  EXPECT_EQ(report.retained, 9'437'184);
  EXPECT_EQ(report.viewed, 9'437'184);
}

TEST(Residuals, OfKAloneRetainTheWholeStorage) {
  const ResidualReport report = FusedQkv(/*only_k=*/true);
  EXPECT_EQ(report.viewed, 3'145'728);
  EXPECT_EQ(report.retained, 9'437'184);
}

TEST(Residuals, OfAnExpandedRowAreTheRow) {
  // A batched matmul reads the row through its stride of 0.
  const Tensor x = Input({1, 1000}), y = Parameter({4, 1000, 2});
  Tape tape;
  tape.Watch(y);
  Sum(MatMul(Expand(x, {4, 1, 1000}), y));
  const ResidualReport report = Residuals(tape.Finish());
  EXPECT_EQ(report.retained, 4000);
  EXPECT_EQ(report.viewed, 4000);
}

TEST(Residuals, LeaveOutParametersAndTheirCasts) {
  const Tensor x = Input({8, 16}, DType::kBF16), w = Parameter({16, 4});
  Tape tape;
  tape.Watch({x, w});
  Sum(MatMul(x, Cast(w, DType::kBF16)));
  EXPECT_EQ(Residuals(tape.Finish()).retained, 8 * 16 * 2);
}

TEST(Residuals, LastUntilTheirGradientIsDone) {
  const Tensor x = Input({8, 16}), w = Parameter({16, 4});
  Tape tape;
  tape.Watch(w);
  tape.Gradient(Sum(MatMul(x, w)), w);
  const Graph graph = tape.Finish();
  const ResidualReport report = Residuals(graph);
  ASSERT_EQ(report.residuals.size(), 1u);
  const Residual& r = report.residuals[0];
  EXPECT_EQ(graph.nodes[r.from].op, &kMatMul);
  EXPECT_EQ(graph.nodes[r.until].serves, r.from);
  EXPECT_EQ(r.savers, std::vector<NodeId>{r.from});
}

TEST(Residuals, OfMicroBatchesDoNotAddUp) {
  const Tensor w = Parameter({16, 4});
  Tape tape;
  tape.Watch(w);
  for (int i = 0; i < 4; ++i) tape.Gradient(Sum(MatMul(Input({8, 16}), w)), w);
  EXPECT_EQ(Residuals(tape.Finish()).retained, 8 * 16 * 4);
}

// Korthikanti's layer, op by op in 16 bits with dropout masks of one byte: s = 4, b = 1, h = 8, a
// = 2.
constexpr int64_t kSeq = 4, kWidth = 8, kHeads = 2;

Graph MegatronLayer() {
  const DType t = DType::kF16;
  const Tensor x0 = Parameter({kSeq, kWidth}, t);
  const Tensor qkv_w = Parameter({3 * kWidth, kWidth}, t), proj_w = Parameter({kWidth, kWidth}, t);
  const Tensor up_w = Parameter({4 * kWidth, kWidth}, t),
               down_w = Parameter({kWidth, 4 * kWidth}, t);
  const Tensor ln1 = Parameter({kWidth}, t), ln1b = Parameter({kWidth}, t);
  const Tensor ln2 = Parameter({kWidth}, t), ln2b = Parameter({kWidth}, t);
  const Tensor mask = Input({kSeq, kSeq}, DType::kBool);
  Random random(1);
  Tape tape;
  const std::vector<Tensor> wrt = {x0, qkv_w, proj_w, up_w, down_w, ln1, ln1b, ln2, ln2b};
  tape.Watch(wrt);
  const Tensor x = Mul(x0, 2.0);  // an activation: the layer's input
  const auto head = [](const Tensor& y) {
    return Transpose(Reshape(y, {kSeq, kHeads, kWidth / kHeads}), 0, 1);
  };
  const Tensor norm1 = LayerNorm(x, ln1, ln1b);
  Tensor qkv[3];
  for (int i = 0; i < 3; ++i) {
    qkv[i] = head(Linear(norm1, Slice(qkv_w, 0, i * kWidth, (i + 1) * kWidth)));
  }
  const Tensor scores = MaskedFill(MatMul(qkv[0], qkv[1], {.b = true}), mask, -1e4);
  const Tensor p = Dropout(Softmax(scores), 0.1, random);
  const Tensor mixed = Reshape(Transpose(MatMul(p, qkv[2]), 0, 1), {kSeq, kWidth});
  const Tensor y = Add(x, Dropout(Linear(mixed, proj_w), 0.1, random));
  const Tensor up = Linear(LayerNorm(y, ln2, ln2b), up_w);
  const Tensor z = Add(y, Dropout(Linear(Gelu(up), down_w), 0.1, random));
  tape.Gradient(Sum(z), wrt);
  return tape.Finish();
}

TEST(Residuals, OfAMegatronLayerAreThePublishedFormula) {
  const ResidualReport report = Residuals(MegatronLayer());
  const int64_t sbh = kSeq * kWidth, ass = kHeads * kSeq * kSeq;
  // Beside the formula: mean and rstd of two norms, f32; the causal mask, one byte each.
  const int64_t statistics =
      report.RetainedBy("layer_norm", 1) + report.RetainedBy("layer_norm", 2);
  EXPECT_EQ(statistics, 2 * 2 * kSeq * 4);
  EXPECT_EQ(report.retained_inputs, kSeq * kSeq);
  EXPECT_EQ(report.retained - statistics - report.retained_inputs, 34 * sbh + 5 * ass);
  EXPECT_EQ(34 * sbh + 5 * ass, 1248);
}

TEST(Residuals, AreWhatThePlanWithoutRecomputationKeeps) {
  const Graph graph = MegatronLayer();
  const absl::StatusOr<PlanPrice> none = PricePlan(graph, PlanNone(graph));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->saved_bytes, Residuals(graph).retained);
}

TEST(Residuals, AreWhatThatPlanKeepsOfMicroBatchesMadeBefore) {
  const Tensor w = Parameter({16, 4});
  const Tensor batches[] = {Input({8, 16}), Input({8, 16}), Input({8, 16})};
  Tape tape;
  tape.Watch(w);
  for (const Tensor& x : batches) tape.Gradient(Sum(MatMul(x, w)), w);
  const Graph graph = tape.Finish();
  EXPECT_EQ(PriceValidPlan(graph, PlanNone(graph)).saved_bytes, 8 * 16 * 4);
  EXPECT_EQ(Residuals(graph).retained, 8 * 16 * 4);
}

}  // namespace
}  // namespace tally
