#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/ops.h"
#include "tally/tests/error_of.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

int CountOps(const Graph& graph, const std::string& name, Phase phase) {
  int count = 0;
  for (const Node& node : graph.nodes) count += node.op->name == name && node.phase == phase;
  return count;
}

TEST(Gradient, OfAPolynomialByHand) {
  const Tensor x = F64({3}, {});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Add(Mul(x, x), x);  // 2x + 1
  EXPECT_EQ(tape.Gradient(y, x).Item(), 7);
}

TEST(Gradient, RunsOnlyRulesThatAreNeeded) {
  const Tensor x = F64({1, 2, 3, 4}, {2, 2}), w = F64({1, 1, 1, 1}, {2, 2});
  Tape tape;
  tape.Watch(w);
  const Tensor loss = Sum(MatMul(x, w));
  tape.Gradient(loss, w);
  EXPECT_EQ(CountOps(tape.graph(), "matmul", Phase::kBackward), 1);
}

TEST(Gradient, NodesNameTheForwardNodeTheyServe) {
  const Tensor x = F64({1}, {}), y = F64({2}, {});
  Tape tape;
  tape.Watch(x);
  const Tensor a = Exp(x);
  const Tensor loss = Mul(a, y);
  tape.Gradient(loss, x);
  const Graph graph = tape.Finish();
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kBackward || std::string(node.op->name) == "fill") continue;
    EXPECT_TRUE(node.serves == 0 || node.serves == 1);
  }
  EXPECT_EQ(graph.nodes.back().serves, 0);
}

TEST(Gradient, SumsBroadcastAxesDown) {
  const Tensor row = F64({1, 2, 3}, {3}), x = F64({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  tape.Watch(row);
  const Tensor loss = Sum(Mul(x, row));
  EXPECT_THAT(tape.Gradient(loss, row).ToVector<double>(), ElementsAre(1 + 4, 2 + 5, 3 + 6));
}

TEST(Gradient, GivesEveryLeafStorageOfItsOwn) {
  const Tensor a = F64({1, 2}, {2}), b = F64({3, 4}, {2});
  Tape tape;
  tape.Watch(a);
  tape.Watch(b);
  const Tensor loss = Sum(Add(a, b));
  const Tensors grads = tape.Gradient(loss, {a, b});
  EXPECT_FALSE(SharesStorage(grads[0], grads[1]));
  EXPECT_TRUE(grads[0].contiguous());
  EXPECT_THAT(grads[1].ToVector<double>(), ElementsAre(1, 1));
}

TEST(Gradient, OfAnUnrelatedLeafIsZeros) {
  const Tensor a = F64({1, 2}, {2}), b = F64({3, 4}, {2});
  Tape tape;
  tape.Watch(a);
  tape.Watch(b);
  const Tensors grads = tape.Gradient(Sum(a), {a, b});
  EXPECT_THAT(grads[1].ToVector<double>(), ElementsAre(0, 0));
}

TEST(Gradient, OfAnIntermediateValue) {
  const Tensor x = F64({2}, {});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Mul(x, x);
  const Tensor z = Mul(y, y);
  const Tensors grads = tape.Gradient(z, {y, x});
  EXPECT_EQ(grads[0].Item(), 2 * 4);          // dz/dy = 2y
  EXPECT_EQ(grads[1].Item(), 4 * 2 * 2 * 2);  // dz/dx = 4x³
}

TEST(Gradient, AccumulatesInPlaceWhenAloneAndByAddForCreateGraph) {
  const Tensor x = F64({1, 2}, {2});
  for (bool create_graph : {false, true}) {
    Tape tape;
    tape.Watch(x);
    const Tensor loss = Sum(Mul(Exp(x), Sin(x)));
    tape.Gradient(loss, x, {.create_graph = create_graph});
    const Graph graph = tape.Finish();
    EXPECT_EQ(CountOps(graph, "add_", Phase::kBackward), create_graph ? 0 : 1);
  }
}

// GradientOptions::dtype gives what a cast of the finished gradient gives, wherever the tensor
// lies: a leaf read once or several times, one without influence, a value on the way, the loss
// itself.
TEST(Gradient, InAnotherDTypeIsTheCastOfTheWhole) {
  const auto bf16 = [](const std::vector<double>& v) { return Cast(F64(v, {3}), DType::kBF16); };
  const Tensor a = bf16({1, 2, 3}), b = bf16({0.7, -2, 5}), unused = bf16({1, 1, 1});
  const auto run = [&](const GradientOptions& options) {
    Tape tape;
    tape.Watch({a, b, unused});
    const Tensor y = Mul(Exp(a), b);
    const Tensor side = Mul(a, a);  // reads a and does not lead to the loss
    const Tensor loss = Sum(Add(Mul(y, Sin(a)), Mul(a, b)));
    return tape.Gradient(loss, {a, b, unused, y, loss}, options);
  };
  const Tensors own = run({}), wide = run({.dtype = DType::kF32});
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(own[i].dtype(), DType::kBF16);
    EXPECT_TRUE(BitEqual(wide[i], Cast(own[i], DType::kF32))) << i;
    EXPECT_TRUE(BitEqual(own[i], run({.dtype = DType::kBF16})[i])) << i;
  }
  EXPECT_THAT(wide[2].ToDoubles(), ElementsAre(0, 0, 0));
}

// Four 8x8 weights in bf16: 128 bytes of gradient each, 256 in f32.
TEST(Gradient, InAnotherDTypeHoldsOneInItsOwnAtATime) {
  std::vector<Tensor> weights;
  for (int i = 0; i < 4; ++i) weights.push_back(Tensor::Full({DType::kBF16, {8, 8}}, 0.125));
  Tape tape;
  tape.Watch(weights);
  Tensor x = Tensor::Full({DType::kBF16, {1, 8}}, 1);
  for (const Tensor& w : weights) x = Tanh(MatMul(x, w));
  const Tensors grads = tape.Gradient(Sum(x), weights, {.dtype = DType::kF32});
  const Graph graph = tape.Finish();
  EXPECT_EQ(CountOps(graph, "cast", Phase::kBackward), 4);
  int narrow = 0, most_narrow = 0, wide = 0;
  for (const StorageEvent& e : graph.events) {
    const StorageRecord& s = graph.storages[e.storage];
    if (s.origin != Origin::kGradient) continue;
    const int change = e.kind == StorageEvent::kAllocate ? 1 : -1;
    if (s.bytes == 8 * 8 * 2) most_narrow = std::max(most_narrow, narrow += change);
    if (s.bytes == 8 * 8 * 4) wide += change;
  }
  EXPECT_EQ(most_narrow, 1);
  EXPECT_EQ(narrow, 0);
  EXPECT_EQ(wide, 4);
  for (const Node& node : graph.nodes) {  // a cast serves the node whose weight's gradient it is
    if (node.phase != Phase::kBackward || std::string(node.op->name) != "cast") continue;
    EXPECT_STREQ(graph.nodes[node.serves].op->name, "matmul");
  }
}

TEST(Gradient, InAnotherDTypeIsDifferentiableAgain) {
  const Tensor x = Tensor::Full({DType::kF32, {}}, 2);
  Tape tape;
  tape.Watch(x);
  const Tensor g =
      tape.Gradient(Mul(x, Mul(x, x)), x, {.create_graph = true, .dtype = DType::kF64});
  EXPECT_EQ(g.dtype(), DType::kF64);
  EXPECT_EQ(g.Item(), 3 * 2 * 2);                    // 3x²
  EXPECT_EQ(tape.Gradient(g, x).Item(), 3 * 2 * 2);  // 6x
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(g, x, {.dtype = DType::kI64}); }),
              HasSubstr("gradients in i64"));
}

TEST(Gradient, ThirdDerivativeOfTanhTimesSquare) {
  const double x0 = 0.7;
  const Tensor x = F64({x0}, {});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Mul(Tanh(x), Square(x));
  const Tensor d1 = tape.Gradient(y, x, {.create_graph = true});
  const Tensor d2 = tape.Gradient(d1, x, {.create_graph = true});
  const Tensor d3 = tape.Gradient(d2, x);
  // With t = tanh x and s = 1 - t²: t' = s, t'' = -2ts, t''' = -2s² + 4t²s.
  const double t = std::tanh(x0), s = 1 - t * t;
  EXPECT_NEAR(d1.Item(), s * x0 * x0 + 2 * t * x0, 1e-12);
  EXPECT_NEAR(d2.Item(), -2 * t * s * x0 * x0 + 4 * s * x0 + 2 * t, 1e-12);
  EXPECT_NEAR(d3.Item(), (-2 * s * s + 4 * t * t * s) * x0 * x0 - 12 * t * s * x0 + 6 * s, 1e-12);
}

TEST(Gradient, FreesResidualsAsItGoes) {
  const Tensor x = F64({1, 2}, {2});
  Tape tape;
  tape.Watch(x);
  Tensor loss = Sum(Exp(Exp(x)));
  EXPECT_EQ(tape.SavedBytes(), 2 * 2 * 8);
  tape.Gradient(loss, x);
  EXPECT_EQ(tape.SavedBytes(), 0);
}

TEST(Gradient, FreesADeadBranchBeforeTheWalk) {
  const Tensor x = F64({1, 2}, {2});
  Tape tape;
  tape.Watch(x);
  const Tensor loss = Sum(Exp(x));
  ValueId dead;
  {
    Tensor branch = Exp(Neg(x));
    dead = tape.IdOf(branch);
  }
  const NodeId forward_nodes = static_cast<NodeId>(tape.graph().nodes.size());
  tape.Gradient(loss, x);
  const Graph graph = tape.Finish();
  const StorageId storage = graph.values[dead].storage;
  for (const StorageEvent& e : graph.events) {
    if (e.kind != StorageEvent::kFree || e.storage != storage) continue;
    EXPECT_EQ(e.at, forward_nodes);
    return;
  }
  FAIL() << "the dead branch was never freed";
}

TEST(Gradient, CanBeCalledAgainOnlyWithRetain) {
  const Tensor x = F64({1}, {});
  {
    Tape tape;
    tape.Watch(x);
    const Tensor y = Exp(x);
    tape.Gradient(y, x, {.retain = true});
    EXPECT_NEAR(tape.Gradient(y, x).Item(), std::exp(1.0), 1e-15);
  }
  Tape tape;
  tape.Watch(x);
  const Tensor y = Exp(x);
  tape.Gradient(y, x);
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(y, x); }), HasSubstr("pass retain = true"));
}

TEST(Gradient, SumsMicroBatchesOnOneTape) {
  const Tensor w = F64({2}, {});
  Tape tape;
  tape.Watch(w);
  Tensor total;
  for (double x : {1.0, 2.0, 3.0}) {
    const Tensor loss = Mul(Mul(w, w), F64({x}, {}));
    const Tensor g = tape.Gradient(loss, w);
    if (total.defined())
      AddInPlace(total, g);
    else
      total = g;
  }
  EXPECT_EQ(total.Item(), 2 * 2 * (1 + 2 + 3));
}

TEST(Gradient, NoticesThatALeafWasUpdatedFirst) {
  const Tensor w = F64({2}, {1});
  Declare(w, Origin::kParameter, "w");
  Tape tape;
  tape.Watch(w);
  const Tensor loss = Sum(Square(w));
  {
    ScopedPhase optimizer(Phase::kOptimizer);
    FillInPlace(w, 0);
  }
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(loss, w); }),
              HasSubstr("of w was changed by node 2 (fill_) after the loss was made"));
}

TEST(Gradient, NoticesThatASavedValueWasOverwritten) {
  const Tensor w = F64({2}, {1}), x = F64({3}, {1});
  Declare(x, Origin::kInput, "x");
  Tape tape;
  tape.Watch(w);
  const Tensor loss = Sum(Mul(w, x));
  FillInPlace(x, 0);
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(loss, w); }),
              AllOf(HasSubstr("of x) was changed after it was saved for node 0 (mul)")));
}

TEST(Gradient, SaysWhatIsWrongWithItsArguments) {
  const Tensor x = F64({1, 2}, {2}), other = F64({1}, {});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Exp(x);
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(y, x); }), HasSubstr("give GradientOptions::seed"));
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(other, x); }), HasSubstr("was not recorded"));
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(Sum(y), other); }), HasSubstr("neither watched"));
  const Tensor unrelated = Sum(Exp(F64({1}, {1})));
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(unrelated, x); }),
              HasSubstr("does not depend on a watched tensor"));
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(y, x, {.seed = other}); }),
              HasSubstr("the seed is f64[] on cpu, the loss is f64[2] on cpu"));
}

TEST(Gradient, TakesASeedForANonScalarLoss) {
  const Tensor x = F64({1, 2}, {2});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Square(x);
  EXPECT_THAT(tape.Gradient(y, x, {.seed = F64({10, 100}, {2})}).ToVector<double>(),
              ElementsAre(2 * 1 * 10, 2 * 2 * 100));
}

TEST(Gradient, AChainOf100000OpsNeedsNoRecursion) {
  const Tensor x = F64({1}, {1});
  Graph graph;
  {
    Tape tape;
    tape.Watch(x);
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = Add(Mul(y, 0.5), 1.0);
    EXPECT_NEAR(y.Item(), 2.0, 1e-12);
    const Tensor g = tape.Gradient(y, x);
    EXPECT_EQ(g.Item(), 0.0);  // 0.5^100000 underflows
    graph = tape.Finish();
  }
  EXPECT_GE(graph.nodes.size(), 300000u);
}

TEST(Gradient, IsTheSameGraphOnMeta) {
  std::vector<std::vector<std::string>> ops;
  std::vector<std::vector<NodeId>> events;
  for (Device device : {kCpu, kMeta}) {
    Random random(1);
    const Tensor w = Tensor::Normal({DType::kF32, {8, 4}}, 0, 1, random, device);
    const Tensor x = Tensor::Normal({DType::kF32, {5, 8}}, 0, 1, random, device);
    Tape tape;
    tape.Watch(w);
    const Tensor loss = Mean(Square(Tanh(MatMul(x, w))));
    const Tensor g = tape.Gradient(loss, w);
    const Graph graph = tape.Finish();
    ops.emplace_back();
    events.emplace_back();
    for (const Node& n : graph.nodes) ops.back().push_back(n.op->name);
    for (const StorageEvent& e : graph.events) {
      events.back().push_back(e.at * 2 + e.kind);
      events.back().push_back(e.storage);
    }
  }
  EXPECT_EQ(ops[0], ops[1]);
  EXPECT_EQ(events[0], events[1]);
}

TEST(Gradient, OfAnUnrelatedLeafIsOnItsDevice) {
  const Tensor x = Tensor::Empty({DType::kF32, {2}}, kMeta);
  const Tensor unrelated = Tensor::Empty({DType::kF32, {3}}, kMeta);
  Tape tape;
  tape.Watch({x, unrelated});
  EXPECT_EQ(tape.Gradient(Sum(Exp(x)), {x, unrelated})[1].device(), kMeta);
}

TEST(Gradient, RefusedForItsArgumentsFreesNothing) {
  const Tensor x = F64({3}, {1});
  Tape tape;
  tape.Watch(x);
  const Tensor vector = Exp(Cat({x, x}, 0)), loss = Sum(Square(x));
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(vector, x); }), HasSubstr("seed"));
  EXPECT_EQ(tape.Gradient(loss, x).Item(), 6);
  EXPECT_EQ(tape.graph().loss, tape.IdOf(loss));
}

TEST(Gradient, ThatIsTheSeedItselfHasAValue) {
  const Tensor x = F64({1, 2}, {2}), y = F64({3, 4}, {2});
  Tape tape;
  tape.Watch({x, y});
  const Tensors grads =
      tape.Gradient(Add(x, y), {x, y}, {.seed = F64({5, 6}, {2}), .create_graph = true});
  const ValueId first = tape.IdOf(grads[0]);
  EXPECT_NE(first, kNone);
  EXPECT_THAT(tape.graph().gradients, ElementsAre(first, first));
}

TEST(Gradient, IsRefusedWhereNothingIsRecorded) {
  const Tensor x = F64({3}, {1});
  Tape tape;
  tape.Watch(x);
  const Tensor y = Exp(x);
  {
    NoRecord off;
    EXPECT_THAT(ErrorOf([&] { tape.Gradient(y, x); }), HasSubstr("Gradient under NoRecord"));
  }
  EXPECT_EQ(tape.Gradient(y, x).Item(), y.Item());
}

// An op of a user whose gradient rule is wrong in some way.
absl::Status InferSame(const OpCall& call, Specs& out) {
  out.push_back(call.in[0]);
  return absl::OkStatus();
}
Cost Free(const OpCall&) { return {}; }

std::string ErrorOfRule(Tensors (*rule)(const GradArgs&)) {
  OpDef op = {.name = "wrong", .infer = InferSame, .cost = Free};
  op.grads[0] = {.of = {0}, .fn = rule};
  const Tensor x = Tensor::Empty({DType::kF32, {2, 3}}, kMeta);
  Tape tape;
  tape.Watch(x);
  const Tensor loss = Sum(Apply(op, {x}));
  return ErrorOf([&] { tape.Gradient(loss, x); });
}

TEST(Gradient, NamesTheUsersRuleThatGivesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOfRule([](const GradArgs&) { return Tensors(); }),
              HasSubstr("the gradient rule of node 0 (wrong) gave 0 tensors"));
  EXPECT_THAT(ErrorOfRule([](const GradArgs& g) { return Tensors{Cast(g.dy(), DType::kF64)}; }),
              HasSubstr("rule of node 0 (wrong) gave f64[2,3] for %0, which is f32[2,3]"));
  EXPECT_THAT(ErrorOfRule([](const GradArgs& g) { return Tensors{Slice(g.dy(), 1, 0, 2)}; }),
              HasSubstr("rule of node 0 (wrong) gave f32[2,2] for %0, which is f32[2,3]"));
}

}  // namespace
}  // namespace tally
