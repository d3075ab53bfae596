#include "tally/autograd/tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/ops/ops.h"
#include "tally/tests/error_of.h"

namespace tally {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor F64(const std::vector<double>& values, const Shape& shape) {
  return Tensor::FromVector(values, shape);
}

std::vector<std::string> OpNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.op->name);
  return names;
}

TEST(Tape, RecordsOpsInOrderWithTheirOperands) {
  Tape tape;
  const Tensor a = F64({1, 2}, {2}), b = F64({3, 4}, {2});
  const Tensor c = Mul(a, b);
  const Tensor d = Add(c, a);
  const Graph graph = tape.Finish();
  EXPECT_THAT(OpNames(graph), ElementsAre("mul", "add"));
  EXPECT_THAT(graph.in(graph.nodes[0]), ElementsAre(0, 1));
  EXPECT_THAT(graph.out(graph.nodes[0]), ElementsAre(2));
  EXPECT_THAT(graph.in(graph.nodes[1]), ElementsAre(2, 0));
  EXPECT_EQ(graph.values[3].producer, 1);
  EXPECT_EQ(graph.values[0].producer, kNone);
}

TEST(Tape, KeepsNothingAliveWithoutWatchedTensors) {
  const Tensor a = F64({1, 2}, {2});
  Tape tape;
  Tensor b = Exp(a);
  Tensor c = Mul(b, b);
  EXPECT_EQ(b.use_count(), 1);
  EXPECT_EQ(tape.SavedBytes(), 0);
}

TEST(Tape, KeepsOnlyWhatTheNeededGradientReads) {
  const Tensor a = Tensor::Empty({DType::kF32, {4, 8}}, kMeta);
  const Tensor b = Tensor::Empty({DType::kF32, {8, 2}}, kMeta);
  Tape tape;
  tape.Watch(b);
  MatMul(a, b);
  EXPECT_THAT(tape.graph().saved(tape.graph().nodes[0]), ElementsAre(tape.IdOf(a)));
  EXPECT_EQ(tape.SavedBytes(), 4 * 8 * 4);
}

TEST(Tape, DatesOlderStoragesToPositionZeroAndNewOnesToTheirNode) {
  const Tensor a = F64({1, 2, 3}, {3});
  Tape tape;
  const Tensor b = Exp(a);
  { const Tensor c = Exp(b); }
  const Tensor d = Exp(b);
  const Graph graph = tape.Finish();
  ASSERT_EQ(graph.events.size(), 5u);
  EXPECT_EQ(graph.events[0].at, 0);
  EXPECT_TRUE(graph.storages[graph.events[0].storage].resident);
  EXPECT_EQ(graph.events[2].kind, StorageEvent::kAllocate);
  EXPECT_EQ(graph.events[2].at, 1);
  EXPECT_EQ(graph.events[3].kind, StorageEvent::kFree);
  EXPECT_EQ(graph.events[3].at, 2);
  EXPECT_EQ(graph.storages[graph.events[3].storage].bytes, 3 * 8);
}

TEST(Tape, CountsBytesThatNoOpTouchesAsOneBaseline) {
  const int64_t before = ThreadMemory(DeviceKind::kCpu).live;
  const Tensor untouched = Tensor::Zeros({DType::kF32, {100}});
  const Tensor touched = Tensor::Zeros({DType::kF32, {10}});
  Tape tape;
  const Tensor y = Exp(touched);
  EXPECT_EQ(tape.Finish().baseline_bytes, before + 400);
}

TEST(Tape, ViewsShareTheStorageOfTheirBase) {
  const Tensor a = F64({1, 2, 3, 4}, {2, 2});
  Tape tape;
  const Tensor b = Transpose(a, 0, 1);
  EXPECT_TRUE(SharesStorage(a, b));
  const Graph graph = tape.Finish();
  EXPECT_EQ(graph.values[0].storage, graph.values[1].storage);
  EXPECT_EQ(graph.nodes[0].op->kind, OpKind::kView);
}

TEST(Tape, RecordsTheCopyThatAKernelNeeds) {
  const Tensor a = F64({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  Exp(Transpose(a, 0, 1));
  EXPECT_THAT(OpNames(tape.Finish()), ElementsAre("transpose", "contiguous", "exp"));
}

TEST(Tape, AnUpdateMakesANewValueOfTheSameStorage) {
  const Tensor x = F64({1, 2}, {2});
  Tape tape;
  AddInPlace(x, x);
  const Tensor y = Exp(x);
  EXPECT_THAT(x.ToVector<double>(), ElementsAre(2, 4));
  const Graph graph = tape.Finish();
  const ValueId before = graph.in(graph.nodes[0])[0];
  const ValueId after = graph.out(graph.nodes[0])[0];
  EXPECT_NE(before, after);
  EXPECT_EQ(graph.values[before].version + 1, graph.values[after].version);
  EXPECT_EQ(graph.values[before].storage, graph.values[after].storage);
  EXPECT_THAT(graph.in(graph.nodes[1]), ElementsAre(after));
}

TEST(Tape, AViewReadAfterAnUpdateIsTheUpdatesResult) {
  const Tensor x = F64({1, 2, 3, 4}, {2, 2});
  Tape tape;
  const Tensor row = Select(x, 0, 1);
  FillInPlace(x, 7);
  const Tensor y = Neg(row);
  EXPECT_THAT(y.ToVector<double>(), ElementsAre(-7, -7));
  const Graph graph = tape.Finish();
  EXPECT_EQ(graph.values[graph.in(graph.nodes[2])[0]].producer, 1);
}

TEST(Tape, ScopesNestAndRepeat) {
  const Tensor x = F64({1}, {1});
  Tape tape;
  for (int i = 0; i < 2; ++i) {
    Scope block("h." + std::to_string(i));
    Exp(x);
    Scope inner("attn");
    Exp(x);
  }
  const Graph graph = tape.Finish();
  EXPECT_EQ(graph.ScopePath(graph.nodes[0].scope), "h.0");
  EXPECT_EQ(graph.ScopePath(graph.nodes[1].scope), "h.0/attn");
  EXPECT_EQ(graph.ScopePath(graph.nodes[3].scope), "h.1/attn");
}

TEST(Tape, RecordsRandomOffsetsRelativeToItsBase) {
  const Tensor x = Tensor::Ones({DType::kF32, {8}});
  Random random(5, RandomStream::kDropout, 1000);
  Tape tape;
  Dropout(x, 0.5, random);
  Dropout(x, 0.5, random);
  const Graph graph = tape.Finish();
  EXPECT_THAT(AttrsText(graph.nodes[0].op->attrs, graph.nodes[0].attrs), HasSubstr("offset=0"));
  EXPECT_THAT(AttrsText(graph.nodes[1].op->attrs, graph.nodes[1].attrs), HasSubstr("offset=8"));
  ASSERT_EQ(graph.rng.size(), 1u);
  EXPECT_EQ(graph.rng[0].offset, 1000u);
}

TEST(Tape, HostReadsAndSurvivorsAreOutputs) {
  const Tensor x = F64({1}, {1});
  Tape tape;
  { Exp(x).Item(); }
  { const Tensor dropped = Exp(x); }
  const Tensor kept = Exp(x);
  EXPECT_THAT(tape.Finish().outputs, ElementsAre(1, 3));
}

TEST(Tape, NothingIsRecordedWithoutATape) {
  const Tensor x = F64({1}, {1});
  const Tensor before = Exp(x);
  Tape tape;
  {
    NoRecord off;
    Exp(x);
  }
  EXPECT_THAT(tape.Finish().nodes, IsEmpty());
}

TEST(Tape, RefusesASecondTapeOnTheThread) {
  Tape tape;
  EXPECT_THAT(ErrorOf([] { Tape second; }), HasSubstr("another tape records"));
}

TEST(Tape, ReleasesTheThreadWhenItEnds) {
  { Tape first; }
  Tape second;
  second.Finish();
  Tape third;
}

TEST(Watch, RefusesIntegersResultsAndLateLeaves) {
  const Tensor ids = Tensor::FromVector<int64_t>({1}, {1});
  const Tensor x = F64({1}, {1});
  Tape tape;
  EXPECT_THAT(ErrorOf([&] { tape.Watch(ids); }), HasSubstr("only floats have gradients"));
  const Tensor y = Exp(x);
  EXPECT_THAT(ErrorOf([&] { tape.Watch(y); }), HasSubstr("node 0 made"));
  EXPECT_THAT(ErrorOf([&] { tape.Watch(x); }), HasSubstr("after node 0 (exp) used its storage"));
}

TEST(Watch, RefusesAViewMadeBeforeItsBaseWasWatched) {
  const Tensor w = F64({1, 2, 3, 4}, {2, 2});
  const Tensor view = Transpose(w, 0, 1);
  Tape tape;
  tape.Watch(w);
  EXPECT_THAT(ErrorOf([&] { Exp(view); }), HasSubstr("made outside this tape"));
}

TEST(Watch, RefusesInPlaceWritesToWhatNeedsAGradient) {
  const Tensor w = F64({1, 2}, {2});
  Tape tape;
  tape.Watch(w);
  EXPECT_THAT(ErrorOf([&] { FillInPlace(w, 0); }), HasSubstr("in place, which needs a gradient"));
  ScopedPhase optimizer(Phase::kOptimizer);
  FillInPlace(w, 0);
  EXPECT_THAT(w.ToVector<double>(), ElementsAre(0, 0));
}

TEST(Tape, OutputsAreBitEqualWithAndWithoutRecording) {
  Random random(3);
  const Tensor a = Tensor::Normal({DType::kF32, {33, 17}}, 0, 1, random);
  const Tensor b = Tensor::Normal({DType::kF32, {17, 9}}, 0, 1, random);
  const Tensor plain = GeluTanh(MatMul(a, b));
  Tape tape;
  tape.Watch(a);
  EXPECT_TRUE(BitEqual(plain, GeluTanh(MatMul(a, b))));
}

TEST(Tape, RefusesASecondTapeUnderNoRecordToo) {
  Tape tape;
  NoRecord off;
  EXPECT_THAT(ErrorOf([] { Tape second; }), HasSubstr("another tape records"));
}

TEST(Tape, KnowsItsDeviceWhenNothingOutlivesIt) {
  Tape tape;
  Exp(Tensor::Empty({DType::kF32, {2}}, kMeta));
  EXPECT_EQ(tape.Finish().device, kMeta);
}

TEST(Tape, TellsTheObserverBeforeItWhatHappens) {
  struct Counter : StorageObserver {
    void OnAllocate(Storage&) override { ++allocated; }
    void OnFree(Storage&) override { ++freed; }
    void OnHostRead(const Tensor&) override { ++read; }
    int allocated = 0, freed = 0, read = 0;
  } counter;
  StorageObserver* const before = SetStorageObserver(&counter);
  {
    Tape tape;
    F64({1}, {}).Item();
  }
  SetStorageObserver(before);
  EXPECT_THAT((std::vector<int>{counter.allocated, counter.freed, counter.read}),
              ElementsAre(1, 1, 1));
}

TEST(Tape, KeepsNothingForOpsOfTheOptimizerPhase) {
  const Tensor w = F64({1, 2}, {2});
  Tape tape;
  tape.Watch(w);
  ScopedPhase optimizer(Phase::kOptimizer);
  const Tensor decay = Exp(w);  // its gradient would read it
  EXPECT_EQ(tape.SavedBytes(), 0);
}

TEST(Watch, RefusesInPlaceWritesThatWouldLoseAGradient) {
  const Tensor w = F64({1, 2}, {2}), sum = F64({0, 0}, {2});
  Tape tape;
  tape.Watch(w);
  const Tensor h = Exp(w);
  EXPECT_THAT(ErrorOf([&] { AddInPlace(sum, h); }), HasSubstr("add_: reads %1 (f64[2]), which"));
  EXPECT_THAT(sum.ToVector<double>(), ElementsAre(0, 0));
  NoRecord outside;
  AddInPlace(sum, w);
  EXPECT_THAT(sum.ToVector<double>(), ElementsAre(1, 2));
}

TEST(Watch, TakesSeveralLeavesOfOneStorage) {
  const Tensor flat = F64({1, 2, 3, 4}, {4});
  const Tensor a = Slice(flat, 0, 0, 2), b = Slice(flat, 0, 2, 4);
  Tape tape;
  tape.Watch({a, b});
  const Tensors grads = tape.Gradient(Sum(Mul(a, b)), {a, b});
  EXPECT_THAT(grads[0].ToVector<double>(), ElementsAre(3, 4));
  EXPECT_THAT(grads[1].ToVector<double>(), ElementsAre(1, 2));
  EXPECT_THAT(ErrorOf([&] { Exp(flat); }), HasSubstr("made outside this tape"));
}

TEST(Tape, CopiesATensorOnceForAllOperandsThatAreIt) {
  const Tensor w = F64({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  tape.Watch(w);
  const Tensor t = Transpose(w, 0, 1);
  const Tensor y = Mul(t, t);
  EXPECT_THAT(OpNames(tape.graph()), ElementsAre("transpose", "contiguous", "mul"));
  EXPECT_EQ(tape.SavedBytes(), 6 * 8);
}

}  // namespace
}  // namespace tally
