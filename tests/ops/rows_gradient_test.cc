// Gradients of the ops that walk rows, against central differences, of first and second order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tally/ops/attention.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/norm.h"
#include "tally/ops/reduce.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/testing.h"
#include "tally/tests/ops/counted.h"

namespace tally {
namespace {

using testing::Each;
using testing::ElementsAre;

Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}
std::vector<CrossEntropyOptions> Variants() {
  return {{.label_smoothing = 0},
          {.reduction = Reduction::kSum},
          {.label_smoothing = 0.1},
          {.ignore_index = 2, .reduction = Reduction::kSum, .label_smoothing = 0.3},
          {.ignore_index = 2}};
}
Tensor Ids(const std::vector<int64_t>& ids) {
  return Tensor::FromVector(ids, {static_cast<int64_t>(ids.size())});
}

TEST(Reduce, SharesTheGradientOfAnExtremeAmongEquals) {
  const Tensor x = F64({3, 1, 3, 2}, {4});
  Tape tape;
  tape.Watch(x);
  EXPECT_THAT(tape.Gradient(Max(x), x).ToVector<double>(), ElementsAre(0.5, 0, 0.5, 0));
}

TEST(Reduce, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {3, 2, 4}});
  for (const Axes& axes : {Axes{}, Axes{1}, Axes{0, 2}}) {
    for (bool keepdim : {false, true}) {
      // Squared, so that second derivatives are not all 0.
      EXPECT_TRUE(
          GradCheck([&](const Tensors& in) { return Square(Sum(in[0], axes, keepdim)); }, {x}));
      EXPECT_TRUE(
          GradCheck([&](const Tensors& in) { return Square(Mean(in[0], axes, keepdim)); }, {x}));
      EXPECT_TRUE(
          GradCheck([&](const Tensors& in) { return Square(Max(in[0], axes, keepdim)); }, {x}));
      EXPECT_TRUE(
          GradCheck([&](const Tensors& in) { return Square(Min(in[0], axes, keepdim)); }, {x}));
      EXPECT_TRUE(
          GradCheck([&](const Tensors& in) { return Square(Var(in[0], axes, 1, keepdim)); }, {x}));
    }
  }
}

TEST(Softmax, KeepsOnlyItsOutputForTheGradient) {
  Tape tape;
  const Tensor x = Tensor::Zeros({DType::kF32, {4, 8}});
  tape.Watch(x);
  const Tensor y = Softmax(x);
  EXPECT_EQ(tape.SavedBytes(), 4 * 4 * 8);
  const Tensor dx = tape.Gradient(Sum(Mul(y, y)), x);
  EXPECT_EQ(tape.SavedBytes(), 0);
}

TEST(Softmax, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {2, 3, 4}});
  for (const SoftmaxOptions& options : {SoftmaxOptions{}, SoftmaxOptions{.axis = 0, .scale = -2},
                                        SoftmaxOptions{.scale = 0.5, .causal = true}}) {
    EXPECT_TRUE(GradCheck([&](const Tensors& in) { return Softmax(in[0], options); }, {x}));
  }
  for (int axis : {1, -1}) {
    EXPECT_TRUE(GradCheck([&](const Tensors& in) { return LogSoftmax(in[0], axis); }, {x}));
  }
}

TEST(CrossEntropy, IsNanWhenEveryRowIsIgnoredAndItsGradientZero) {
  const Tensor logits = WildTensor({DType::kF32, {2, 3}}), targets = Ids({-100, -100});
  EXPECT_TRUE(std::isnan(CrossEntropy(logits, targets).Item()));
  EXPECT_EQ(CrossEntropy(logits, targets, {.reduction = Reduction::kSum}).Item(), 0);
  for (bool create_graph : {false, true}) {
    Tape tape;
    tape.Watch(logits);
    GradientOptions options;
    options.create_graph = create_graph;
    EXPECT_THAT(tape.Gradient(CrossEntropy(logits, targets), logits, options).ToDoubles(), Each(0));
  }
}

TEST(CrossEntropy, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {4, 5}});
  const Tensor targets = Ids({0, 3, 2, 4});
  for (const CrossEntropyOptions& options : Variants()) {
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) {
          const Tensor loss = CrossEntropy(in[0], targets, options);
          return Mul(loss, loss);
        },
        {x}));
  }
}

TEST(LayerNorm, CostsNothingMoreForFrozenParameters) {
  Tape tape;
  const Tensor x = WildTensor({DType::kF32, {6, 10}}), w = Tensor::Ones({DType::kF32, {10}});
  tape.Watch(x);
  tape.Gradient(Sum(LayerNorm(x, w, w)), x);
  for (const Node& node : tape.Finish().nodes) EXPECT_NE(node.op, &kLayerNormParamGrad);
}

TEST(LayerNorm, HasTheGradientsThatDifferencesGive) {
  const Tensor x = WildTensor({DType::kF64, {2, 2, 5}});
  const Tensor w = WildTensor({DType::kF64, {5}}, 2), b = WildTensor({DType::kF64, {5}}, 3);
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) { return Mul(LayerNorm(in[0], in[1], in[2]), in[0]); }, {x, w, b}));
  EXPECT_TRUE(GradCheck([](const Tensors& in) { return LayerNorm(in[0]); }, {x}));
  EXPECT_TRUE(GradCheck([](const Tensors& in) { return LayerNorm(in[0], in[1]); }, {x, w}));
}

TEST(Dropout, HasTheGradientsThatDifferencesGive) {
  EXPECT_TRUE(GradCheck(
      [](const Tensors& in) {
        Random random(5);
        const Tensor y = Dropout(in[0], 0.4, random);
        return Square(y);
      },
      {WildTensor({DType::kF64, {3, 4}})}));
}

TEST(Attention, HasTheGradientsThatDifferencesGive) {
  const Tensor q = WildTensor({DType::kF64, {2, 3, 2}}, 1);
  const Tensor k = WildTensor({DType::kF64, {2, 4, 2}}, 2);
  const Tensor v = WildTensor({DType::kF64, {2, 4, 3}}, 3);
  for (bool causal : {false, true}) {
    EXPECT_TRUE(GradCheck(
        [&](const Tensors& in) { return Attention(in[0], in[1], in[2], {.causal = causal}); },
        {q, k, v}));
  }
}

}  // namespace
}  // namespace tally
