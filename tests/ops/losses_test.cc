#include "tally/ops/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tally/ops/softmax.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"
#include "tally/tests/ops/row_helpers.h"

namespace tally {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr LossReduction kReductions[] = {LossReduction::kNone, LossReduction::kMean,
                                         LossReduction::kSum, LossReduction::kBatchMean};

TEST(MseLoss, IsTheMeanSquareByHand) {
  const Tensor x = F64({1, 2, 3, 4}, {2, 2}), t = F64({1, 4, 0, 5}, {2, 2});
  EXPECT_THAT(MseLoss(x, t, LossReduction::kNone).ToDoubles(), ElementsAre(0, 4, 9, 1));
  EXPECT_EQ(MseLoss(x, t, LossReduction::kSum).Item(), 14);
  EXPECT_EQ(MseLoss(x, t).Item(), 14 / 4.0);
  EXPECT_EQ(MseLoss(x, t, LossReduction::kBatchMean).Item(), 14 / 2.0);
}

TEST(MseLoss, KeepsTheDifferenceAlone) {
  Tape tape;
  const Tensor x = WildTensor({DType::kF32, {6, 10}}), t = WildTensor(x.spec(), 2);
  tape.Watch(x);
  const Tensor loss = MseLoss(x, t);
  EXPECT_EQ(tape.SavedBytes(), 4 * 6 * 10);
  // dx = 2 (x - t) / N
  const std::vector<double> dx = tape.Gradient(loss, x).ToDoubles(), a = x.ToDoubles(),
                            b = t.ToDoubles();
  for (int i = 0; i < 60; ++i) EXPECT_NEAR(dx[i], 2 * (a[i] - b[i]) / 60, 1e-7);
}

TEST(MseLoss, CostsWhatItsHeaderSays) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kF32, {6, 10}}), t = Tensor::Zeros(x.spec());
  MseLoss(x, t);
  const Graph graph = tape.Finish();
  Cost cost;
  for (const Node& node : graph.nodes) cost += CostOf(graph, node);
  EXPECT_EQ(cost.other, 2 * 60 + 59 + 1);
  EXPECT_EQ(cost.transcendental, 0);
}

TEST(KlDivLoss, IsTheDivergenceByHand) {
  // Of (1/2, 1/2) from (1/4, 3/4), and of (0, 1) from the same.
  const Tensor log_p =
      F64({std::log(0.25), std::log(0.75), std::log(0.25), std::log(0.75)}, {2, 2});
  const Tensor target = F64({0.5, 0.5, 0, 1}, {2, 2});
  const double first = 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), second = std::log(4.0 / 3);
  EXPECT_THAT(KlDivLoss(log_p, target, {.reduction = LossReduction::kNone}).ToDoubles(),
              ElementsAre(DoubleEq(0.5 * std::log(2.0)), DoubleEq(0.5 * std::log(2.0 / 3)), 0,
                          DoubleEq(second)));
  const auto with = [&](LossReduction reduction) {
    return KlDivLoss(log_p, target, {.reduction = reduction}).Item();
  };
  EXPECT_NEAR(with(LossReduction::kSum), first + second, 1e-15);
  EXPECT_NEAR(with(LossReduction::kBatchMean), (first + second) / 2, 1e-15);
  EXPECT_NEAR(with(LossReduction::kMean), (first + second) / 4, 1e-15);
}

TEST(KlDivLoss, TakesLogTargets) {
  const Tensor log_p = LogSoftmax(WildTensor({DType::kF64, {3, 5}}));
  const Tensor log_q = LogSoftmax(WildTensor({DType::kF64, {3, 5}}, 2));
  const Tensor q = Softmax(WildTensor({DType::kF64, {3, 5}}, 2));
  for (LossReduction reduction : kReductions) {
    ExpectRow(KlDivLoss(log_p, log_q, {.reduction = reduction, .log_target = true}), 0,
              NumbersOf(KlDivLoss(log_p, q, {.reduction = reduction})), 1e-14, "loss");
  }
}

TEST(KlDivLoss, KeepsTheTargetAloneForALearner) {
  Tape tape;
  const Tensor log_p = WildTensor({DType::kF32, {6, 10}}), target = WildTensor(log_p.spec(), 2);
  tape.Watch(log_p);
  const Tensor loss = KlDivLoss(log_p, target, {.reduction = LossReduction::kSum});
  EXPECT_EQ(tape.SavedBytes(), 4 * 6 * 10);
}

TEST(KlDivLoss, CostsWhatItsHeaderSays) {
  const Tensor x = Tensor::Zeros({DType::kF32, {6, 10}}), t = Tensor::Ones(x.spec());
  for (bool log_target : {false, true}) {
    Tape tape;
    KlDivLoss(x, t, {.reduction = LossReduction::kBatchMean, .log_target = log_target});
    const Graph graph = tape.Finish();
    Cost cost;
    for (const Node& node : graph.nodes) cost += CostOf(graph, node);
    EXPECT_EQ(cost.other, (log_target ? 2 : 3) * 60 + 59 + 1);
    EXPECT_EQ(cost.transcendental, 60);
  }
}

TEST(KlDivLoss, HasAFiniteGradientWhereTheTargetIsZero) {
  const Tensor log_p = F64({-1, -2}, {2}), target = F64({0, 0.5}, {2});
  Tape tape;
  tape.Watch({log_p, target});
  const Tensors grads =
      tape.Gradient(KlDivLoss(log_p, target, {.reduction = LossReduction::kSum}), {log_p, target});
  EXPECT_THAT(grads[0].ToDoubles(), ElementsAre(0, -0.5));
  // log t + 1 - x, and -x where t is 0
  EXPECT_THAT(grads[1].ToDoubles(), ElementsAre(1, DoubleEq(std::log(0.5) + 1 + 2)));
}

TEST(Losses, HaveTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {3, 4}}), t = WildTensor(x.spec(), 2);
  const Tensor positive = Softmax(t);
  for (LossReduction reduction : kReductions) {
    EXPECT_TRUE(
        GradCheck([&](const Tensors& in) { return MseLoss(in[0], in[1], reduction); }, {x, t}));
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) { return KlDivLoss(in[0], in[1], {.reduction = reduction}); },
        {x, positive}));
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) {
          return KlDivLoss(in[0], in[1], {.reduction = reduction, .log_target = true});
        },
        {x, t}));
  }
}

TEST(Losses, RefuseTargetsThatWouldBroadcast) {
  const Tensor x = Tensor::Zeros({DType::kF32, {4, 1}}), t = Tensor::Zeros({DType::kF32, {4}});
  EXPECT_EQ(MessageOf([&] { MseLoss(x, t); }),
            "mse_loss: x and target differ: x is f32[4,1], target is f32[4]");
  EXPECT_THAT(MessageOf([&] { KlDivLoss(x, t); }), HasSubstr("kl_div: x and target differ"));
  const Tensor ids = Tensor::Zeros({DType::kI64, {4}});
  EXPECT_THAT(MessageOf([&] { MseLoss(ids, ids); }), HasSubstr("computes on f64, f32"));
  const Tensor one = Tensor::Zeros({DType::kF32, {}});
  EXPECT_THAT(MessageOf([&] { MseLoss(one, one, LossReduction::kBatchMean); }),
              HasSubstr("has no batch"));
}

}  // namespace
}  // namespace tally
