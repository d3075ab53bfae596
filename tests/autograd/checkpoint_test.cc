// Checkpoint scopes: the same bits with less kept, and what runs again counted by hand.
#include "tally/autograd/checkpoint.h"

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/analysis/memory.h"
#include "tally/analysis/simulate.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/ops/ops.h"
#include "tally/tests/error_of.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

// What ran again, by op, in order. Views are not listed.
std::vector<std::string> RanAgain(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kRecompute && node.op->kind != OpKind::kView) {
      ops.push_back(node.op->name);
    }
  }
  return ops;
}

using Inputs = std::vector<Tensor>;
struct Result {
  Tensors grads;
  double loss = 0;
  Graph graph;
  int64_t saved = 0;  // Tape::SavedBytes before Gradient
};
// One step of `loss_of` with gradients for all of `leaves`.
Result Step(const Inputs& leaves, const std::function<Tensor()>& loss_of) {
  Result r;
  Tape tape;
  tape.Watch(leaves);
  Tensor loss = loss_of();
  r.saved = tape.SavedBytes();
  r.grads = tape.Gradient(loss, leaves);
  EXPECT_EQ(tape.SavedBytes(), 0);
  r.loss = loss.Item();
  loss = Tensor();
  r.graph = tape.Finish();
  EXPECT_EQ(Verify(r.graph), absl::OkStatus());
  return r;
}

void ExpectSameBits(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i) EXPECT_TRUE(BitEqual(a.grads[i], b.grads[i])) << i;
}

// y = w2 (w1 x): dw1 = w2 x, dw2 = w1 x, dx = w1 w2.
TEST(Checkpoint, GivesGradientsOfEverythingReadInside) {
  const Tensor x = F64({2}, {}), w1 = F64({3}, {}), w2 = F64({5}, {});
  const Result r = Step({w1, w2, x}, [&] { return Checkpoint([&] { return w2 * (w1 * x); }); });
  EXPECT_EQ(r.loss, 30);
  EXPECT_EQ(r.grads[0].Item(), 10);
  EXPECT_EQ(r.grads[1].Item(), 6);
  EXPECT_EQ(r.grads[2].Item(), 15);
  // Of the two products only the first is read again.
  EXPECT_THAT(RanAgain(r.graph), ElementsAre("mul"));
}

TEST(Checkpoint, RunsTheLayersItWasGiven) {
  const Tensor x = F64({3}, {});
  const std::vector<CheckpointLayer> layers = {[](const Tensor& h) { return h * 2; },
                                               [](const Tensor& h) { return h + 1; }};
  for (int64_t segments : {1, 2}) {
    const Result r = Step({x}, [&] { return CheckpointSequential(layers, segments, x); });
    EXPECT_EQ(r.loss, 7);
    EXPECT_EQ(r.grads[0].Item(), 2);
  }
}

TEST(Checkpoint, OfOpsThatSaveNothingRunsNothingAgain) {
  const Tensor x = F64({1, 2}, {2});
  const Result r =
      Step({x}, [&] { return Sum(Checkpoint([&] { return CopyOf(x) + CopyOf(x * 3); })); });
  EXPECT_THAT(r.grads[0].ToVector<double>(), ElementsAre(4, 4));
  EXPECT_THAT(RanAgain(r.graph), IsEmpty());
}

// exp reads its output, mul its inputs: what is read again is exp(x), through two views; sin after
// it is not needed.
TEST(Checkpoint, StopsAtTheLastValueThatIsRead) {
  const Tensor x = F64({1, 2, 3, 4}, {2, 2}), w = F64({5, 6, 7, 8}, {4});
  const auto model = [&] {
    const Tensor e = Exp(x);
    const Tensor flat = Reshape(Transpose(Transpose(e, 0, 1), 0, 1), {4});
    return Sum(flat * w) + Mean(Neg(Neg(flat)));
  };
  const Result plain = Step({x, w}, model);
  const Result again = Step({x, w}, [&] { return Checkpoint(model); });
  ExpectSameBits(plain, again);
  EXPECT_THAT(RanAgain(again.graph), ElementsAre("exp"));
}

TEST(Checkpoint, KeepsOnlyWhatItRecomputesFrom) {
  const Tensor x = F64(std::vector<double>(100, 0.5), {100});
  const auto chain = [](Tensor h) {
    for (int i = 0; i < 4; ++i) h = Sin(h);
    return h;
  };
  const Result plain = Step({x}, [&] { return Sum(chain(chain(x))); });
  const Result again = Step({x}, [&] {
    const Tensor h = Checkpoint([&] { return chain(x); });
    return Sum(Checkpoint([&] { return chain(h); }));
  });
  ExpectSameBits(plain, again);
  EXPECT_EQ(plain.saved, 8 * 800);                 // the input of each sin
  EXPECT_EQ(again.saved, 2 * 800);                 // x and h
  EXPECT_EQ(RanAgain(again.graph).size(), 2 * 3);  // the last of four has no reader
  EXPECT_LT(AnalyzeMemory(again.graph).peak_bytes, AnalyzeMemory(plain.graph).peak_bytes);
}

// Chain of four that read their inputs, two levels: [ [1 2] [3] ] 4. The outer scope makes x2 again
// for the inner ones; the inner ones make x1 again.
TEST(Checkpoint, ScopesNest) {
  const Tensor x = F64({0.3, 0.4}, {2});
  const auto model = [&](bool outer, bool inner) {
    const auto in = [&](bool on, const std::function<Tensor()>& fn) {
      return on ? Checkpoint(fn) : fn();
    };
    const Tensor h3 = in(outer, [&] {
      const Tensor h2 = in(inner, [&] { return Sin(Sin(x)); });
      return in(inner, [&] { return Sin(h2); });
    });
    return Sum(Sin(h3));
  };
  const Result plain = Step({x}, [&] { return model(false, false); });
  const Result inner = Step({x}, [&] { return model(false, true); });
  const Result outer = Step({x}, [&] { return model(true, false); });
  const Result both = Step({x}, [&] { return model(true, true); });
  ExpectSameBits(plain, inner);
  ExpectSameBits(plain, outer);
  ExpectSameBits(plain, both);
  EXPECT_EQ(RanAgain(inner.graph).size(), 1);  // x1
  EXPECT_EQ(RanAgain(outer.graph).size(), 2);  // x1 x2
  EXPECT_EQ(RanAgain(both.graph).size(), 3);   // x1 x2, then x1
  EXPECT_EQ(inner.saved, 3 * 16);              // x x2 x3
  EXPECT_EQ(outer.saved, 2 * 16);              // x x3
  EXPECT_EQ(both.saved, 2 * 16);
}

TEST(Checkpoint, ReplaysDropoutBeforeInsideAndAfter) {
  const Tensor x = F64(std::vector<double>(64, 1.5), {8, 8});
  const Tensor w = F64(std::vector<double>(64, 0.25), {8, 8});
  const auto run = [&](bool on, Random* random, Result* result) {
    *result = Step({x, w}, [&] {
      Tensor h = Dropout(x, 0.5, *random);
      const auto segment = [&] {
        return Dropout(Tanh(MatMul(Dropout(Sin(h), 0.5, *random), w)), 0.5, *random);
      };
      const Tensor y = on ? Checkpoint(segment) : segment();
      return Sum(Square(Dropout(y, 0.5, *random)));
    });
  };
  Random a(7, RandomStream::kDropout), b(7, RandomStream::kDropout);
  Dropout(x, 0.5, a), Dropout(x, 0.5, b);  // the tape's base is not the stream's start
  Result plain, again;
  run(false, &a, &plain);
  run(true, &b, &again);
  ExpectSameBits(plain, again);
  EXPECT_EQ(a.offset(), b.offset());
  EXPECT_TRUE(BitEqual(Dropout(x, 0.5, a), Dropout(x, 0.5, b)));
  // The masks of both dropouts inside and tanh's output: everything but nothing after the last.
  EXPECT_THAT(RanAgain(again.graph), ElementsAre("sin", "dropout", "matmul", "tanh", "dropout"));
}

// momentum 0.1, batch mean 1, running mean 0: 0.1 after one step; 0.19 if recomputed too.
TEST(Checkpoint, UpdatesRunningStatisticsOnce) {
  const Tensor x = F64({0, 1, 2, 1}, {4, 1}), weight = F64({2}, {1}), bias = F64({0.5}, {1});
  const Tensor mean = F64({0}, {1}), var = F64({1}, {1}), batches = F64({0}, {});
  const Tensor one = F64({1}, {});
  const auto model = [&] {
    const BatchNormed n = BatchNorm(x, weight, bias);
    UpdateRunning(mean, var, n, 4, 0.1);
    AddInPlace(batches, one);
    return Sum(Square(Tanh(n.y)));
  };
  const Result again = Step({x, weight, bias}, [&] { return Checkpoint(model); });
  EXPECT_DOUBLE_EQ(mean.Item(), 0.1);
  EXPECT_EQ(batches.Item(), 1);
  for (const Node& node : again.graph.nodes) {
    EXPECT_FALSE(node.op->kind == OpKind::kUpdate && node.phase == Phase::kRecompute);
  }
  const Result plain = Step({x, weight, bias}, model);
  ExpectSameBits(plain, again);
}

TEST(Checkpoint, ReadsWhatAnUpdateInsideWrote) {
  const Tensor x = F64({3}, {}), scale = F64({2}, {});
  const Result r = Step({x}, [&] {
    return Checkpoint([&] {
      const Tensor buffer = Tensor::Zeros(TensorSpec{DType::kF64, {}});
      CopyInPlace(buffer, scale);
      const Tensor h = Sin(x * buffer);
      return h * buffer;
    });
  });
  EXPECT_NEAR(r.grads[0].Item(), 4 * std::cos(6.0), 1e-12);
}

TEST(Checkpoint, NamesWhatWasWrittenSince) {
  const Tensor x = F64({3}, {}), data = F64({2}, {});
  data.storage().set_name("data");
  Tape tape;
  tape.Watch(x);
  const Tensor y = Checkpoint([&] { return Sin(Exp(data) * x); });
  FillInPlace(data, 1);
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(y, x); }),
              AllOf(HasSubstr("of data) was changed after it was saved for node 0 (exp)")));
}

// (x + p)[:] then relu: in place is refused as outside scopes, out of place is right.
TEST(Checkpoint, TakesViewsAndRefusesWritesInPlace) {
  const Tensor x = F64({0, 0, 0, 0, 0}, {5}), p = F64({1}, {});
  const Result r =
      Step({p, x}, [&] { return Sum(Checkpoint([&] { return Relu(Slice(x + p, 0, 0, 5)); })); });
  EXPECT_EQ(r.grads[0].Item(), 5);
  EXPECT_THAT(r.grads[1].ToVector<double>(), ElementsAre(1, 1, 1, 1, 1));
  Tape tape;
  tape.Watch(p);
  EXPECT_THAT(ErrorOf([&] { Checkpoint([&] { FillInPlace(Slice(x + p, 0, 0, 5), 0); }); }),
              HasSubstr("in place, which needs a gradient"));
  // The scope of the failed call is closed.
  EXPECT_EQ(tape.Gradient(Square(p), p).Item(), 2);
}

// An instance norm of two channels on ones, then relu: zeros, not nothing.
TEST(Checkpoint, GivesZerosWhereTheGradientIsZero) {
  const Tensor x = F64({1, 1, 1, 1, 1, 1}, {3, 2, 1});
  const Result r =
      Step({x}, [&] { return Sum(Checkpoint([&] { return Relu(GroupNorm(x, 2)); })); });
  EXPECT_THAT(r.grads[0].ToVector<double>(), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(Checkpoint, RunsAgainForEveryGradient) {
  const Tensor x = F64({0.5, 0.25}, {2});
  Tape tape;
  tape.Watch(x);
  const Tensor loss = Sum(Checkpoint([&] { return Sin(Sin(Sin(x))); }));
  const int64_t kept = tape.SavedBytes();
  const Tensor first = tape.Gradient(loss, x, {.retain = true});
  EXPECT_EQ(tape.SavedBytes(), kept);
  const int64_t live = ThreadMemory(DeviceKind::kCpu).live;
  const Tensor second = tape.Gradient(loss, x, {.retain = true});
  EXPECT_EQ(ThreadMemory(DeviceKind::kCpu).live, live + 16);  // the gradient, nothing recomputed
  EXPECT_TRUE(BitEqual(first, second));
  EXPECT_EQ(RanAgain(tape.graph()).size(), 2 * 2);
  tape.Gradient(loss, x);
  EXPECT_EQ(tape.SavedBytes(), 0);
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(loss, x); }), HasSubstr("retain = true"));
}

// d/dx of (d/dx of sum(exp(sin(x w)))), which reads recomputed values, bit for bit.
TEST(Checkpoint, GradientsOfGradientsAreTheSame) {
  const Tensor x = F64({0.3, 0.7, -0.2}, {3}), w = F64({1.5, 2, 0.5}, {3});
  const auto second = [&](bool on, Graph* graph) {
    Tape tape;
    tape.Watch({x, w});
    const auto model = [&] { return Sum(Exp(Sin(x * w)) * Tanh(w)); };
    const Tensor loss = on ? Checkpoint(model) : model();
    const Tensor g = tape.Gradient(loss, x, {.create_graph = true});
    const Tensors result = tape.Gradient(Sum(Square(g)), {x, w});
    *graph = tape.Finish();
    return result;
  };
  Graph plain_graph, graph;
  const Tensors plain = second(false, &plain_graph), again = second(true, &graph);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(BitEqual(plain[i], again[i])) << i;
  EXPECT_FALSE(RanAgain(graph).empty());
  EXPECT_EQ(Verify(graph), absl::OkStatus());
}

TEST(Checkpoint, RebuildsOnlyWhatLeadsToWhatIsAskedFor) {
  const Tensor a = F64({2}, {}), b = F64({3}, {});
  Tape tape;
  tape.Watch({a, b});
  const Tensor loss = Checkpoint([&] { return Sin(Sin(a)) + Cos(Cos(Cos(b))); });
  tape.Gradient(loss, a);
  EXPECT_THAT(RanAgain(tape.graph()), ElementsAre("sin"));
}

TEST(Checkpoint, WithoutATapeOrUnderNoRecordDoesNothing) {
  const Tensor x = F64({2}, {});
  EXPECT_EQ(Checkpoint([&] { return x * x; }).Item(), 4);
  Tape tape;
  tape.Watch(x);
  const NoRecord off;
  EXPECT_EQ(Checkpoint([&] { return x * x; }).Item(), 4);
  EXPECT_THAT(tape.graph().nodes, IsEmpty());
  EXPECT_THAT(ErrorOf([&] { tape.Checkpoint([&] { return x * x; }); }), HasSubstr("NoRecord"));
}

TEST(Checkpoint, RefusesGradientInsideAScope) {
  const Tensor x = F64({2}, {});
  Tape tape;
  tape.Watch(x);
  EXPECT_THAT(ErrorOf([&] { tape.Checkpoint([&] { return tape.Gradient(x * x, x); }); }),
              HasSubstr("inside a checkpoint scope"));
}

TEST(Checkpoint, SplitsSegmentsEvenlyAndLateOnesShort) {
  EXPECT_THAT(SplitBalanced(9, 5), ElementsAre(2, 2, 2, 2, 1));
  EXPECT_THAT(SplitBalanced(10, 3), ElementsAre(4, 3, 3));
  EXPECT_THAT(SplitBalanced(4, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(SplitUniform(24, 7), ElementsAre(7, 7, 7, 3));
  EXPECT_THAT(SplitUniform(3, 10), ElementsAre(3));
  EXPECT_THAT(ErrorOf([] { SplitBalanced(3, 4); }),
              HasSubstr("4 segments of 3 layers; ask for 1 to 3"));
  EXPECT_THAT(ErrorOf([] { SplitBalanced(3, 0); }), HasSubstr("ask for 1 to 3"));
  EXPECT_THAT(ErrorOf([] { SplitBalanced(0, 0); }),
              HasSubstr("segments of 0 layers; there must be 1 or more"));
  EXPECT_THAT(ErrorOf([] { SplitUniform(3, 0); }), HasSubstr("1 or more"));
  std::vector<CheckpointLayer> layers(3, [](const Tensor& h) { return h; });
  EXPECT_THAT(ErrorOf([&] {
                CheckpointSequential(layers, std::vector<int64_t>{1, 1}, Tensor::Zeros({}));
              }),
              HasSubstr("segments of 1, 1 layers do not add up to the 3 there are"));
  EXPECT_THAT(ErrorOf([&] {
                CheckpointSequential(layers, std::vector<int64_t>{3, 0}, Tensor::Zeros({}));
              }),
              HasSubstr("segment 1 of 3, 0 has no layers"));
  layers[1] = nullptr;
  EXPECT_THAT(ErrorOf([&] { CheckpointSequential(layers, 1, Tensor::Zeros({})); }),
              HasSubstr("layer 1 of 3 is null"));
}

// The square x·x inside a scope whose policy throws at its second op: the exception is the
// policy's, and the tape then does what one without that scope does.
TEST(Checkpoint, WhatAPolicyThrowsLeavesTheTapeUsable) {
  for (const bool nested : {false, true}) {
    const Tensor x = F64({3, 3, 3, 3}, {4});
    Tape tape;
    tape.Watch(x);
    int asked = 0;
    const CheckpointOptions throws = {.save = [&](const CheckpointedOp&) -> bool {
      if (++asked == 2) throw std::runtime_error("no more");
      return false;
    }};
    const auto body = [&] { return Checkpoint([&] { return Exp(x * x); }, throws); };
    try {
      nested ? Checkpoint(body) : body();
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "no more");
    }
    EXPECT_EQ(asked, 2);
    const Tensor y = Sum(Checkpoint([&] { return x * x; }));
    EXPECT_THAT(tape.Gradient(y, x).ToVector<double>(), ElementsAre(6, 6, 6, 6));
    const Graph graph = tape.Finish();
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    EXPECT_TRUE(ValidatePlan(graph, PlanNone(graph)).ok()) << ValidatePlan(graph, PlanNone(graph));
  }
}

TEST(Checkpoint, WhatAnInputCallbackThrowsLeavesTheTapeUsable) {
  const Tensor x = F64({3, 3, 3, 3}, {4}), other = F64({2, 2, 2, 2}, {4});
  Tape tape;
  tape.Watch(x);
  tape.OnInput([](ValueId, const Tensor&) { throw std::runtime_error("not this one"); });
  EXPECT_THROW(x * other, std::runtime_error);
  tape.OnInput(nullptr);
  const Tensor y = Sum(x * other);
  EXPECT_THAT(tape.Gradient(y, x).ToVector<double>(), ElementsAre(2, 2, 2, 2));
  const Graph graph = tape.Finish();
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
}

TEST(Checkpoint, ANameThatNothingHasIsSaidByGradient) {
  const Tensor x = F64({3, 3, 3, 3}, {4});
  Tape tape;
  tape.Watch(x);
  const auto run = [&](const char* name) {
    return Sum(Checkpoint(
        [&] {
          const Tensor product = x * x;
          NameValue(product, name);
          return Exp(product);
        },
        {.save_named = {"product"}}));
  };
  EXPECT_THAT(ErrorOf([&] { tape.Gradient(run("prodcut"), x); }),
              HasSubstr("save_named lists \"product\", and no value"));
  // Not every scope must have what all of them list.
  EXPECT_EQ(tape.Gradient(run("product"), x).numel(), 4);
}

}  // namespace
}  // namespace tally
