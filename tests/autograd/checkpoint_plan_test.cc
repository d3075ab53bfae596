// Checkpoint scopes: memory by the models of checkpointing, policies, verification, deep and random
// programs.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "tally/analysis/memory.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/verify.h"
#include "tally/autograd/tape.h"
#include "tally/ops/apply.h"
#include "tally/ops/ops.h"
#include "tally/tests/autograd/ran_again.h"
#include "tally/tests/error_of.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kUnit = 8 << 10;  // bytes of a value in a chain; scalars do not reach one

// L layers that read their input and keep nothing else (a = 0), on meta.
Graph ChainInSegments(const std::vector<int64_t>& lengths) {
  int64_t layers = 0;
  for (int64_t length : lengths) layers += length;
  const std::vector<CheckpointLayer> chain(layers, [](const Tensor& h) { return Sin(h); });
  const Tensor x = Tensor::Zeros({DType::kF64, {kUnit / 8}}, kMeta);
  Tape tape;
  tape.Watch(x);
  const Tensor loss = Sum(CheckpointSequential(chain, lengths, x));
  const Tensor g = tape.Gradient(loss, x);
  return tape.Finish();
}

// Model M2 (gradients counted, x_0 counted): max over segments of j + k_j, and 1. Extra forwards:
// one less than its length in each segment but the last, which is kept: nobody reads what its last
// layer makes.
TEST(CheckpointChain, PeaksAndRerunsAreThoseOfTheModel) {
  struct Row {
    std::vector<int64_t> lengths;
    int64_t m2, extra;
  };
  const std::vector<Row> rows = {
      {SplitUniform(4, 2), 5, 1},
      {SplitUniform(9, 3), 7, 2 * 2},
      {SplitUniform(10, 3), 7, 3 * 2},
      {SplitUniform(10, 4), 7, 2 * 3},
      {SplitUniform(16, 4), 9, 3 * 3},
      {SplitUniform(64, 8), 17, 7 * 7},
      {SplitUniform(100, 10), 21, 9 * 9},
      {{4, 3, 2, 1}, 6, 3 + 2 + 1},                              // triangular, L = 10
      {{14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 1}, 16, 99 - 11},  // triangular, L = 100
      {{1, 2, 2, 2, 2}, 8, 0 + 3 * 1},                           // longer ones last: a unit more
      {SplitBalanced(9, 5), 7, 4 * 1},
      {{1, 1, 1, 1, 5}, 11, 0},     // the rest all in the last
      {SplitUniform(9, 1), 11, 0},  // each op alone: gains nothing
      {{9}, 11, 0},                 // store-all
  };
  for (const Row& row : rows) {
    const Graph graph = ChainInSegments(row.lengths);
    SCOPED_TRACE(absl::StrCat("first segment ", row.lengths[0], " of ", row.lengths.size()));
    EXPECT_EQ(Verify(graph), absl::OkStatus());
    EXPECT_EQ(AnalyzeMemory(graph).peak_bytes / kUnit, row.m2);
    EXPECT_EQ(static_cast<int64_t>(RanAgain(graph).size()), row.extra);
  }
}

// [[1 2] 3] 4 holds x_0 alone over backward: 4 units, where one level takes 5 and runs 1 again. x_2
// is made of two layers for the third, then x_1 of one for the second.
TEST(CheckpointChain, TwoLevelsOfFourLayersTakeFourUnitsForThreeReruns) {
  const Tensor x = Tensor::Zeros({DType::kF64, {kUnit / 8}}, kMeta);
  Tape tape;
  tape.Watch(x);
  const Tensor loss =
      Sum(Sin(Checkpoint([&] { return Sin(Checkpoint([&] { return Sin(Sin(x)); })); })));
  const Tensor g = tape.Gradient(loss, x);
  const Graph graph = tape.Finish();
  EXPECT_EQ(AnalyzeMemory(graph).peak_bytes / kUnit, 4);
  EXPECT_EQ(RanAgain(graph).size(), 2 + 1);
}

TEST(CheckpointChain, AThousandLayersInSegmentsOf32Take64Units) {
  const Graph graph = ChainInSegments(SplitUniform(1000, 32));
  EXPECT_EQ(AnalyzeMemory(graph).peak_bytes / kUnit, 64);
  // Boundaries x_0, x_32, ..., x_992; at the first replay the last segment is gone: 31 of them and
  // the 31 values made again. Kept at the end of forward: 32 and the 7 inputs more of the last 8.
  EXPECT_EQ(ListResiduals(graph).retained / kUnit, 31 + 31);
  EXPECT_EQ(RanAgain(graph).size(), 31 * 31);
}

// ---- Policies

struct Mlp {
  std::vector<Tensor> w;
  Tensor x, offset;
  Mlp() {
    Random random(3, RandomStream::kInit);
    x = Tensor::Normal({DType::kF32, {4, 8}}, 0, 1, random);
    offset = Tensor::Normal({DType::kF32, {4, 8}}, 0, 1, random);
    for (int i = 0; i < 3; ++i) {
      w.push_back(Tensor::Normal({DType::kF32, {8, 8}}, 0, 1, random));
      Declare(w[i], Origin::kParameter, "w");  // parameters are kept anyway and not counted
    }
  }
  Tensor operator()() const {
    Tensor h = x;
    for (const Tensor& weight : w) {
      h = MatMul(h, weight);
      NameValue(h, "product");
      h = Tanh(h + offset);
      h = h * Sum(Square(h), {1}, true);
    }
    return Sum(Square(h));
  }
};

struct PolicyRun {
  std::vector<std::string> again;
  int64_t saved = 0;
  Tensors grads;
};
PolicyRun RunMlp(const Mlp& mlp, const CheckpointOptions* options) {
  PolicyRun run;
  Tape tape;
  tape.Watch(mlp.w);
  const Tensor loss = options == nullptr ? mlp() : Checkpoint([&] { return mlp(); }, *options);
  run.saved = tape.SavedBytes();
  run.grads = tape.Gradient(loss, mlp.w);
  run.again = RanAgain(tape.graph());
  return run;
}

TEST(CheckpointPolicy, SaysWhatIsKeptAndWhatRunsAgain) {
  const Mlp mlp;
  constexpr int64_t kValue = 4 * 8 * 4;
  const PolicyRun plain = RunMlp(mlp, nullptr);
  const auto run = [&](const CheckpointOptions& options) {
    PolicyRun r = RunMlp(mlp, &options);
    for (size_t i = 0; i < r.grads.size(); ++i) EXPECT_TRUE(BitEqual(r.grads[i], plain.grads[i]));
    return r;
  };
  // Each layer reads its input, what tanh gives and its sum by rows; the loss reads the last
  // output.
  constexpr int64_t kSum = 4 * 4;
  EXPECT_EQ(plain.saved, 7 * kValue + 3 * kSum);

  const PolicyRun nothing = run({});
  EXPECT_EQ(nothing.saved, 2 * kValue);  // x and the offset
  EXPECT_EQ(nothing.again.size(), 3 * 6);

  // The three products, x and the offset.
  const PolicyRun contractions = run({.save = SaveContractions()});
  EXPECT_EQ(contractions.saved, 5 * kValue);
  EXPECT_EQ(std::count(contractions.again.begin(), contractions.again.end(), "matmul"), 0);
  EXPECT_EQ(contractions.again.size(), 3 * 5);
  const PolicyRun named = run({.save_named = {"product"}});
  EXPECT_EQ(named.saved, contractions.saved);
  EXPECT_EQ(named.again, contractions.again);

  // Products and sums are kept; add, tanh and mul run again. The square is for the sum alone.
  const PolicyRun cheap = run({.save = RecomputeCheap()});
  EXPECT_EQ(cheap.saved, 5 * kValue + 3 * kSum);
  EXPECT_THAT(cheap.again,
              ElementsAre("add", "tanh", "mul", "add", "tanh", "mul", "add", "tanh", "mul"));

  // Keeping everything keeps what is read, not every output.
  const PolicyRun all = run({.save = [](const CheckpointedOp&) { return true; }});
  EXPECT_EQ(all.saved, plain.saved);
  EXPECT_THAT(all.again, IsEmpty());
}

TEST(CheckpointPolicy, SeesSpecsAndScope) {
  const Tensor x = Tensor::Ones({DType::kF64, {2, 3}});
  std::vector<std::string> seen;
  const CheckpointOptions options{.save = [&](const CheckpointedOp& node) {
    seen.push_back(absl::StrCat(node.scope(), " ", node.op.name, " ", node.call.in[0].ToString(),
                                " ", node.call.out[0].ToString()));
    return false;
  }};
  Tape tape;
  tape.Watch(x);
  Checkpoint(
      [&] {
        Scope outer("h.0");
        Scope scope("mlp");
        return Sum(Sin(x), {0});
      },
      options);
  EXPECT_THAT(seen, ElementsAre("h.0/mlp sin f64[2,3] f64[2,3]", "h.0/mlp sum f64[2,3] f64[3]"));
}

// An inner scope saves a product that the outer one drops: the outer makes it once for the inner.
TEST(CheckpointPolicy, OfInnerAndOuterScopes) {
  const Mlp mlp;
  Tape tape;
  tape.Watch(mlp.w);
  const Tensor loss = Checkpoint([&] {
    return Sum(Checkpoint([&] { return Tanh(Sin(MatMul(mlp.x, mlp.w[0]))); },
                          {.save = SaveContractions()}));
  });
  tape.Gradient(loss, mlp.w[0]);
  EXPECT_THAT(RanAgain(tape.graph()), ElementsAre("matmul", "sin", "tanh"));
}

// ---- Verification

int calls = 0;

// x + (how often it was called), or with one row less each time.
absl::Status DriftingKernel(const KernelArgs& args) {
  const int64_t n = args.out[0].numel();
  for (int64_t i = 0; i < n; ++i) args.Out<double>(0)[i] = args.In<double>(0)[i] + calls;
  ++calls;
  return absl::OkStatus();
}
absl::Status SameSpec(const OpCall& call, Specs& out) {
  out.push_back(call.in[0]);
  return absl::OkStatus();
}
absl::Status ShrinkingSpec(const OpCall& call, Specs& out) {
  out.push_back({call.in[0].dtype, {call.in[0].shape[0] - calls}});
  return absl::OkStatus();
}
Cost NoCost(const OpCall&) { return {}; }
Tensors PassOn(const GradArgs& args) { return {args.dy()}; }

const OpDef kDrifting = {.name = "drifting",
                         .infer = SameSpec,
                         .cost = NoCost,
                         .kernel = {.cpu = DriftingKernel},
                         .grads = {{{0}, kNothing, PassOn}}};
const OpDef kShrinking = {.name = "shrinking",
                          .infer = ShrinkingSpec,
                          .cost = NoCost,
                          .kernel = {.cpu = DriftingKernel},
                          .grads = {{{0}, kNothing, PassOn}}};

std::string GradientError(const OpDef& op, bool verify) {
  calls = 0;
  const Tensor x = Tensor::Ones({DType::kF64, {4}});
  Tape tape;
  tape.Watch(x);
  const Tensor loss = Checkpoint(
      [&] {
        Scope scope("h.0");
        return Sum(Sin(Apply(op, {x})));
      },
      {.verify = verify});
  return ErrorOf([&] { tape.Gradient(loss, x); });
}

TEST(CheckpointVerify, NamesAnOpThatGivesOtherValuesTheSecondTime) {
  EXPECT_THAT(GradientError(kDrifting, true),
              AllOf(HasSubstr("node 0 (drifting in h.0) gave other values in output 0 (f64[4])"),
                    HasSubstr("ran again")));
  EXPECT_EQ(GradientError(kDrifting, false), "nothing was thrown");
}

TEST(CheckpointVerify, NamesAnOpThatGivesAnotherShapeTheSecondTime) {
  for (bool verify : {false, true}) {
    EXPECT_THAT(GradientError(kShrinking, verify),
                HasSubstr("node 0 (shrinking in h.0) gave f64[3] when it ran again; in forward it "
                          "gave f64[4]"));
  }
}

TEST(CheckpointVerify, FindsNothingWhereOpsRepeat) {
  const Mlp mlp;
  const CheckpointOptions options{.verify = true};
  EXPECT_EQ(RunMlp(mlp, &options).again.size(), 3 * 6);
}

// ---- Deep and wide

void OnSmallStack(const std::function<void()>& body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  const auto run = [](void* fn) -> void* {
    (*static_cast<const std::function<void()>*>(fn))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(CheckpointDeep, TenThousandLayersAndBranchesOnASmallStack) {
  static constexpr int kMany = 10000;
  OnSmallStack([] {
    const Tensor x = Tensor::Full({DType::kF64, {2}}, 0.5);
    Tape tape;
    tape.Watch(x);
    Tensor h = x;
    for (int i = 0; i < kMany; ++i) h = Checkpoint([&] { return Neg(Neg(Sin(h * 1.0))); });
    tape.Gradient(Sum(h), x);
    EXPECT_EQ(RanAgain(tape.graph()).size(), kMany);
  });
  OnSmallStack([] {
    const Tensor x = Tensor::Full({DType::kF64, {2}}, 0.5);
    Tape tape;
    tape.Watch(x);
    Tensor sum = x;
    for (int i = 0; i < kMany; ++i) sum = sum + Checkpoint([&] { return Sin(Sin(x)); });
    tape.Gradient(Sum(sum), x);
    EXPECT_EQ(RanAgain(tape.graph()).size(), kMany);
  });
  OnSmallStack([] {
    constexpr int kNested = 1000;
    const Tensor x = Tensor::Full({DType::kF64, {}}, 0.5);
    Tape tape;
    tape.Watch(x);
    std::vector<std::unique_ptr<CheckpointScope>> scopes;
    Tensor h = x;
    for (int i = 0; i < kNested; ++i) {
      scopes.push_back(std::make_unique<CheckpointScope>());
      h = Sin(h);
    }
    while (!scopes.empty()) scopes.pop_back();
    // The scope at depth i makes the input of its own sin for the one inside: one each.
    tape.Gradient(h, x);
    EXPECT_EQ(RanAgain(tape.graph()).size(), kNested - 1);
  });
}

TEST(CheckpointDeep, LeavesNothingBehindAStep) {
  const Mlp mlp;
  const CheckpointOptions options;
  RunMlp(mlp, &options);
  const int64_t live = ThreadMemory(DeviceKind::kCpu).live;
  for (int step = 0; step < 100; ++step) {
    RunMlp(mlp, &options);
    ASSERT_EQ(ThreadMemory(DeviceKind::kCpu).live, live) << step;
  }
}

// ---- Random programs

}  // namespace
}  // namespace tally
