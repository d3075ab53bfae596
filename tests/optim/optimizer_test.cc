#include "tally/optim/optimizer.h"

#include <cmath>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/ops/optimizer_step.h"
#include "tally/optim/adamw.h"
#include "tally/optim/clip.h"
#include "tally/optim/schedule.h"
#include "tally/optim/sgd.h"
#include "tally/tensor/check.h"
#include "tally/tests/error_of.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Vector(const std::vector<double>& values) {
  return Tensor::FromVector(values, {static_cast<int64_t>(values.size())});
}

// Adam with decoupled decay as in Algorithm 2 of Loshchilov and Hutter, one element in double.
struct ScalarAdamW {
  double p, m = 0, v = 0;
  int t = 0;
  void Step(double g, double lr, double b1, double b2, double eps, double wd) {
    ++t;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double mhat = m / (1 - std::pow(b1, t)), vhat = v / (1 - std::pow(b2, t));
    p = p - lr * (mhat / (std::sqrt(vhat) + eps) + wd * p);
  }
};

TEST(AdamW, FollowsThePaperOver20Steps) {
  const Tensor p = Vector({1, -2, 0.5});
  std::vector<ScalarAdamW> expected{{1}, {-2}, {0.5}};
  AdamW optimizer({.lr = 0.1, .weight_decay = 0.05});
  for (int step = 0; step < 20; ++step) {
    const std::vector<double> g{std::sin(step), 0.3 * step, -1.0};
    optimizer.Step({p}, {Vector(g)});
    for (int i = 0; i < 3; ++i) expected[i].Step(g[i], 0.1, 0.9, 0.999, 1e-8, 0.05);
  }
  const std::vector<double> got = p.ToDoubles();
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[i], expected[i].p, 1e-13);
}

TEST(AdamW, KeepsF32StateForNarrowParametersAndRoundsOnce) {
  const Tensor p = Cast(Vector({1, 2}), DType::kBF16);
  AdamW optimizer({.lr = 1, .weight_decay = 0});
  optimizer.Step({p}, {Cast(Vector({1, 1}), DType::kBF16)});
  ASSERT_EQ(optimizer.state().size(), 2u);
  EXPECT_EQ(optimizer.state()[0].tensor.dtype(), DType::kF32);
  // The first step moves by lr·g/(|g| + eps), so by 1 up to eps.
  EXPECT_THAT(p.ToDoubles(), ElementsAre(0, 1));
}

TEST(AdamW, GivesTheSameBitsForAnyLengthAndOffset) {
  Random random(1);
  const Tensor long_p = Tensor::Normal({DType::kF32, {40000}}, 0, 1, random);
  const Tensor long_g = Tensor::Normal({DType::kF32, {40000}}, 0, 1, random);
  const Tensor p = CopyOf(Slice(long_p, 0, 7, 36)), g = CopyOf(Slice(long_g, 0, 7, 36));
  AdamW a, b;
  a.Step({long_p}, {long_g});
  b.Step({p}, {g});
  EXPECT_TRUE(BitEqual(CopyOf(Slice(long_p, 0, 7, 36)), p));
}

TEST(AdamW, RefusesBetasThatWouldDivideByZero) {
  AdamW optimizer({.beta1 = 1});
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({Vector({1})}, {Vector({1})}); }),
              HasSubstr("betas 1 and 0.999 are not in [0, 1)"));
}

TEST(Sgd, WithoutMomentumHasNoState) {
  const Tensor p = Vector({2});
  Sgd optimizer({.lr = 0.5});
  optimizer.Step({p}, {Vector({1})});
  EXPECT_EQ(p.Item(), 1.5);
  EXPECT_TRUE(optimizer.state().empty());
}

TEST(Sgd, RefusesNesterovWithoutMomentum) {
  EXPECT_THAT(ErrorOf([] { Sgd({.nesterov = true}); }), HasSubstr("momentum above 0"));
}

TEST(Optimizer, RecordsUpdatesAsItsOwnPhaseAndScope) {
  const Tensor p = Vector({1, 2});
  Declare(p, Origin::kParameter, "w");
  Tape tape;
  tape.Watch(p);
  const Tensor loss = Sum(Square(p));
  const Tensors grads{tape.Gradient(loss, p)};
  AdamW optimizer;
  optimizer.Step({p}, grads);
  const Graph graph = tape.Finish();
  const Node& last = graph.nodes.back();
  EXPECT_STREQ(last.op->name, "adamw_");
  EXPECT_EQ(last.phase, Phase::kOptimizer);
  EXPECT_EQ(graph.ScopePath(last.scope), "optimizer");
  int states = 0;
  for (const StorageRecord& s : graph.storages) states += s.origin == Origin::kOptimizerState;
  EXPECT_EQ(states, 2);
  EXPECT_EQ(optimizer.state()[1].tensor.storage().name(), "w.exp_avg_sq");
}

// The lecture's AdaGrad, written outside the library.
class AdaGrad : public Optimizer {
 public:
  const char* name() const override { return "adagrad"; }

 protected:
  void Update(const Tensor& param, const Tensor& grad, size_t i) override {
    const Tensor sum = State(i, "sum", param.spec());
    AddInPlace(sum, Square(grad));
    AddInPlace(param, Mul(Div(grad, Add(Sqrt(sum), 1e-5)), -0.1));
  }
};

// Moves each parameter by the number of its step, and once has no memory for the second.
class Stumbles : public Optimizer {
 public:
  const char* name() const override { return "stumbles"; }

 protected:
  void Update(const Tensor& param, const Tensor&, size_t i) override {
    if (i == 1 && !std::exchange(stumbled_, true))
      throw Error(absl::ResourceExhaustedError("no memory"));
    AddInPlace(param, Tensor::Full(param.spec(), static_cast<double>(steps())));
  }

 private:
  bool stumbled_ = false;
};

TEST(Optimizer, AStepThatEndedEarlyIsFinishedByTheNext) {
  const std::vector<Tensor> params = {Vector({0}), Vector({0}), Vector({0})};
  const auto values = [&] {
    return std::vector<double>{params[0].Item(), params[1].Item(), params[2].Item()};
  };
  Stumbles optimizer;
  EXPECT_THROW(optimizer.Step(params, params), Error);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_THAT(values(), ElementsAre(1, 0, 0));
  optimizer.Step(params, params);
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_THAT(values(), ElementsAre(1, 1, 1));
  optimizer.Step(params, params);
  EXPECT_THAT(values(), ElementsAre(3, 3, 3));  // 1 + 2
}

TEST(Optimizer, AUsersOwnIsCountedAndWorks) {
  const Tensor p = Vector({1});
  AdaGrad optimizer;
  Tape tape;
  optimizer.Step({p}, {Vector({2})});
  const Graph graph = tape.Finish();
  EXPECT_NEAR(p.Item(), 1 - 0.1 * 2 / (2 + 1e-5), 1e-15);
  for (const Node& node : graph.nodes) EXPECT_EQ(node.phase, Phase::kOptimizer);
  EXPECT_EQ(optimizer.state()[0].tensor.storage().origin(), Origin::kOptimizerState);
}

TEST(Optimizer, RefusesListsThatDoNotFit) {
  const Tensor p = Vector({1, 2});
  AdamW optimizer;
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({p}, {}); }), HasSubstr("1 parameters but 0 gradients"));
  optimizer.Step({p}, {Vector({1, 1})});
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({p}, {Vector({1})}); }),
              HasSubstr("its parameter is f64[2]"));
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({Vector({1})}, {Vector({1})}); }),
              HasSubstr("at the first step"));
}

TEST(Optimizer, ResumesWhereItStopped) {
  const Tensor p = Vector({1}), q = Vector({1});
  AdamW whole, first;
  for (int i = 0; i < 4; ++i) whole.Step({p}, {Vector({1.0 + i})});
  for (int i = 0; i < 2; ++i) first.Step({q}, {Vector({1.0 + i})});
  AdamW second;
  second.Restore(first.steps(), first.state());
  for (int i = 2; i < 4; ++i) second.Step({q}, {Vector({1.0 + i})});
  EXPECT_TRUE(BitEqual(p, q));
}

TEST(Clip, ScalesAllGradientsByOneFactor) {
  Tensors grads{Vector({3}), Vector({0, 4})};
  const Tensor norm = ClipByGlobalNorm(grads, 1.0);
  EXPECT_NEAR(norm.Item(), 5, 1e-12);  // sqrt(3² + 4²)
  EXPECT_NEAR(grads[0].Item(), 3.0 / (5 + 1e-6), 1e-12);
  EXPECT_NEAR(grads[1].ToDoubles()[1], 4.0 / (5 + 1e-6), 1e-12);
}

TEST(Clip, LeavesSmallGradientsAlone) {
  Tensors grads{Vector({3}), Vector({0, 4})};
  ClipByGlobalNorm(grads, 100.0);
  EXPECT_EQ(grads[0].Item(), 3);
  EXPECT_THAT(grads[1].ToDoubles(), ElementsAre(0, 4));
}

TEST(Schedule, RisesThenFollowsHalfACosine) {
  const CosineSchedule s{.peak = 1, .floor = 0.2, .warmup = 4, .total = 12};
  EXPECT_DOUBLE_EQ(s.At(0), 0.25);
  EXPECT_DOUBLE_EQ(s.At(3), 1);
  EXPECT_DOUBLE_EQ(s.At(8), 0.6);  // half way down
  EXPECT_DOUBLE_EQ(s.At(12), 0.2);
  EXPECT_DOUBLE_EQ(s.At(1000), 0.2);
}

TEST(Optimizer, RefusesUndefinedParametersAndGradientsElsewhere) {
  AdamW optimizer;
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({Tensor()}, {Tensor()}); }),
              HasSubstr("adamw: parameter 0 is undefined"));
  EXPECT_THAT(ErrorOf([&] { optimizer.Step({Vector({1})}, {Vector({1}).To(kMeta)}); }),
              HasSubstr("gradient 0 is on meta, its parameter on cpu"));
}

TEST(Optimizer, RefusesRestoredStateThatDoesNotFit) {
  const auto step = [](std::vector<OptimizerState> state) {
    AdamW optimizer;
    optimizer.Restore(1, std::move(state));
    optimizer.Step({Vector({1})}, {Vector({1})});
  };
  EXPECT_THAT(ErrorOf([&] {
                step({{0, "exp_avg", Tensor()}});
              }),
              HasSubstr("undefined exp_avg of parameter 0"));
  EXPECT_THAT(ErrorOf([&] {
                step({{size_t{1} << 60, "exp_avg", Vector({1})}});
              }),
              HasSubstr("is of parameter 1152921504606846976; there are 1"));
  EXPECT_THAT(ErrorOf([&] {
                step({{0, "exp_avg", Vector({1, 2})}});
              }),
              HasSubstr("the restored exp_avg of parameter 0 is f64[2]; it must be f64[1]"));
}

TEST(Clip, TakesGradientsOfSeveralDTypes) {
  Tensors grads{Vector({3}), Tensor::Full({DType::kF32, {1}}, 4)};
  EXPECT_NEAR(ClipByGlobalNorm(grads, 1.0).Item(), 5, 1e-12);
  EXPECT_EQ(grads[1].dtype(), DType::kF32);
}

TEST(Clip, RefusesIntegers) {
  Tensors grads{Tensor::FromVector<int64_t>({1}, {1})};
  EXPECT_THAT(ErrorOf([&] { ClipByGlobalNorm(grads, 1.0); }), HasSubstr("gradient 0 is i64[1]"));
}

}  // namespace
}  // namespace tally
