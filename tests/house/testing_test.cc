// tally/testing.h: what holds passes, and what does not fails with the figures and the nodes.
#include "tally/testing.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/gather.h"
#include "tally/ops/matmul.h"
#include "tally/ops/select.h"
#include "tally/ops/unary.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kRows = 8, kIn = 16, kHidden = 64, kOut = 4;

Tensor MetaF32(const Shape& shape) { return Tensor::Empty({DType::kF32, shape}, kMeta); }

// x [8,16] through w1 [16,64] and w2 [64,4]; both weights get gradients, x does not.
Graph TwoLayers() {
  const Tensor x = MetaF32({kRows, kIn});
  const Tensor w1 = MetaF32({kIn, kHidden}), w2 = MetaF32({kHidden, kOut});
  Declare(w1, Origin::kParameter, "w1");
  Declare(w2, Origin::kParameter, "w2");
  Tape tape;
  tape.Watch(w1);
  tape.Watch(w2);
  const Tensor loss = Sum(MatMul(MatMul(x, w1), w2));
  tape.Gradient(loss, {w1, w2});
  return tape.Finish();
}

constexpr int64_t kForward = 2 * kRows * kIn * kHidden + 2 * kRows * kHidden * kOut;
// Both weights, and the input of the second layer alone.
constexpr int64_t kBackward = kForward + 2 * kRows * kHidden * kOut;

TEST(ExpectFlops, TakesModelFlopsAlone) { EXPECT_FLOPS(TwoLayers(), kForward + kBackward); }

TEST(ExpectFlops, TakesNamedFigures) {
  EXPECT_FLOPS(TwoLayers(), .forward = kForward, .backward = kBackward, .transcendental = 0);
}

TEST(ExpectFlops, FailsWithTheFiguresAndTheNodesBehind) {
  const testing::AssertionResult result = HasFlops(TwoLayers(), {.forward = kForward + 1});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(), AllOf(HasSubstr("forward matmul: 20,480 FLOPs, expected 20,481"),
                                      HasSubstr("16,384  node 0 matmul -> f32[8,64]"),
                                      HasSubstr("4,096  node 1 matmul -> f32[8,4]")));
}

TEST(ExpectFlops, SaysNothingOfFiguresThatHold) {
  const testing::AssertionResult result =
      HasFlops(TwoLayers(), {.forward = kForward, .backward = 0});
  EXPECT_THAT(result.message(),
              AllOf(HasSubstr("backward matmul"), Not(HasSubstr("forward matmul"))));
}

TEST(ExpectSavedBytes, CountsWhatTheWeightGradientsRead) {
  EXPECT_SAVED_BYTES(TwoLayers(), 4 * (kRows * kIn + kRows * kHidden));
}

TEST(ExpectSavedBytes, FailsWithEachStorageAndWhoKeepsIt) {
  const testing::AssertionResult result = HasSavedBytes(TwoLayers(), 0);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(),
              AllOf(HasSubstr("saved: 2,560 B, expected 0 B"), HasSubstr("2,048 B"),
                    HasSubstr("node 0 matmul -> f32[8,64]"), HasSubstr("kept for node 1 matmul")));
}

TEST(ExpectPeakBytes, CountsInputsParametersAndTheResult) {
  const Tensor x = MetaF32({kRows, kIn}), w = MetaF32({kIn, kHidden});
  Tape tape;
  const Tensor y = MatMul(x, w);
  EXPECT_PEAK_BYTES(tape.Finish(), 4 * (kRows * kIn + kIn * kHidden + kRows * kHidden));
}

TEST(ExpectPeakBytes, FailsWithWhatLivesAtThePeak) {
  const Tensor x = MetaF32({kRows, kIn}), w = MetaF32({kIn, kHidden});
  Declare(w, Origin::kParameter, "w");
  Tape tape;
  const Tensor y = MatMul(x, w);
  const testing::AssertionResult result = HasPeakBytes(tape.Finish(), 1);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(),
              AllOf(HasSubstr("peak: 6,656 B, expected 1 B"), HasSubstr("at node 0 matmul"),
                    HasSubstr("4,096 B  parameter w of input")));
}

TEST(ExpectSplitProven, HoldsForTwoLayers) { EXPECT_SPLIT_PROVEN(TwoLayers()); }

Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

TEST(GradCheck, PassesForRightGradientsOfBothOrders) {
  const auto fn = [](const Tensors& x) { return Tanh(MatMul(x[0], x[1])); };
  EXPECT_TRUE(GradCheck(fn, {F64({0.1, -0.4, 0.3, 0.2}, {2, 2}), F64({0.5, -0.7}, {2, 1})}));
}

TEST(GradCheck, PassesWhereTheSecondGradientIsZero) {
  const auto fn = [](const Tensors& x) { return Add(x[0], x[1]); };
  EXPECT_TRUE(GradCheck(fn, {F64({1, 2}, {2}), F64({3}, {1})}));
}

TEST(GradCheck, PassesIntegersOnUnchanged) {
  const Tensor ids = Tensor::FromVector<int64_t>({2, 0, 2}, {3});
  const auto fn = [](const Tensors& x) { return Square(GatherRows(x[0], x[1])); };
  EXPECT_TRUE(GradCheck(fn, {F64({1, 2, 3, 4, 5, 6}, {3, 2}), ids}));
}

TEST(GradCheck, RefusesNarrowInputs) {
  const auto fn = [](const Tensors& x) { return Exp(x[0]); };
  EXPECT_THROW(GradCheck(fn, {Tensor::Ones({DType::kF32, {2}})}), Error);
}

// An op with a fault in its gradient: y = x^3, and 2x^2 in place of 3x^2 where x > 1.
absl::Status SameSpec(const OpCall& call, Specs& out) {
  out.push_back(call.in[0]);
  return absl::OkStatus();
}
absl::Status Cube(const KernelArgs& k) {
  for (int64_t i = 0; i < k.out[0].numel(); ++i) {
    const double x = k.In<double>(0)[i];
    k.Out<double>(0)[i] = x * x * x;
  }
  return absl::OkStatus();
}
const OpDef kFaultyCube{
    .name = "faulty_cube",
    .infer = SameSpec,
    .cost = [](const OpCall& call) { return Cost{.other = 2 * call.in[0].numel()}; },
    .kernel = {.cpu = Cube},
    .grads = {{{0}, In(0), [](const GradArgs& g) -> Tensors {
                 const Tensor three = Tensor::Full(g.in_spec(0), 3);
                 const Tensor two = Tensor::Full(g.in_spec(0), 2);
                 const Tensor factor = Where(Greater(g.in(0), 1), two, three);
                 return {Mul(g.dy(), Mul(factor, Square(g.in(0))))};
               }}}};

// A right gradient that says it cannot change with x.
const OpDef kFrozenCube{
    .name = "frozen_cube",
    .infer = SameSpec,
    .cost = [](const OpCall& call) { return Cost{.other = 2 * call.in[0].numel()}; },
    .kernel = {.cpu = Cube},
    .grads = {{{0}, In(0), [](const GradArgs& g) -> Tensors {
                 const Tensor slope = Mul(Square(g.in(0)), 3);
                 NoRecord off;
                 return {Mul(g.dy(), slope)};
               }}}};

TEST(GradCheck, NamesTheInputTheElementAndTheBackwardNodes) {
  const auto fn = [](const Tensors& x) { return Add(x[0], Apply(kFaultyCube, {x[1]})); };
  const testing::AssertionResult result =
      GradCheck(fn, {F64({1, 1, 1}, {3}), F64({0.5, 2, -1}, {3})});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(),
              AllOf(HasSubstr("gradient of input 1 (f64[3])"), HasSubstr("most wrong at [1]"),
                    HasSubstr("for node 0 faulty_cube")));
}

TEST(GradCheck, FindsAFaultThatOnlyTheSecondOrderHas) {
  const auto fn = [](const Tensors& x) { return Apply(kFrozenCube, {x[0]}); };
  const Tensors x = {F64({0.5, 2}, {2})};
  EXPECT_TRUE(GradCheck(fn, x, {.order = 1}));
  const testing::AssertionResult result = GradCheck(fn, x);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("second gradient, of the gradient of input 0"));
}

}  // namespace
}  // namespace tally
