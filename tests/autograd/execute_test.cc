#include "tally/autograd/execute.h"

#include <algorithm>

#include "dropout_chain.h"
#include "gtest/gtest.h"
#include "tally/analysis/measured_costs.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/autograd/checkpoint.h"
#include "tally/ops/apply.h"
#include "tally/ops/binary.h"
#include "tally/ops/dropout.h"
#include "tally/ops/linear.h"
#include "tally/ops/reduce.h"
#include "tally/ops/unary.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"
#include "tally/optim/adamw.h"
#include "tally/tests/small_stack.h"

namespace tally {
namespace {

PlanRun MustRun(const Graph& graph, const Plan& plan, PlanBindings bindings,
                const PlanRunOptions& options = {}) {
  const absl::StatusOr<PlanExecutor> executor = PlanExecutor::Create(graph, plan);
  TALLY_CHECK(executor.ok()) << executor.status().ToString();
  absl::StatusOr<PlanRun> run = executor->Run(std::move(bindings), options);
  TALLY_CHECK(run.ok()) << run.status().ToString();
  return *std::move(run);
}

TEST(PlanExecutor, RunsPlansOfADropoutChainLikeItsRecord) {
  DropoutChain chain(9);
  const RecordedStep step = RecordChain(chain);
  ExpectPlanRunsLikeRecord(step, PlanNone(step.graph));
  ExpectPlanRunsLikeRecord(step, PlanSqrt(step.graph));
  for (int k = 1; k <= 9; ++k) {
    ExpectPlanRunsLikeRecord(step, PlanSegments(step.graph, k, k % 2 == 0));
  }
}

TEST(PlanExecutor, RunsRandomRunListsLikeTheRecord) {
  DropoutChain chain(6);
  const RecordedStep step = RecordChain(chain);
  Random random(1);
  int64_t extra = 0;
  for (int i = 0; i < 60; ++i) {
    const Plan plan = RandomPlan(step.graph, random, 0.1 + 0.01 * i);
    ExpectPlanRunsLikeRecord(step, plan);
    extra += PriceValidPlan(step.graph, plan).extra_nodes;
  }
  EXPECT_GT(extra, 60 * 6);  // they do recompute
}

TEST(PlanExecutor, RunsTheOptimizerToo) {
  DropoutChain chain(5);
  AdamW adamw;
  const Tensor x = chain.MakeInput();
  {
    Tape warm;  // the state of the optimizer comes to be
    chain.Step(warm, x, &adamw);
  }
  const RecordedStep step = RecordChain(chain, &adamw);
  ExpectPlanRunsLikeRecord(step, PlanNone(step.graph));
  ExpectPlanRunsLikeRecord(step, PlanSqrt(step.graph));
  Random random(2);
  for (int i = 0; i < 10; ++i) ExpectPlanRunsLikeRecord(step, RandomPlan(step.graph, random, 0.4));
}

TEST(PlanExecutor, MakesWhatTheRecordMadeWhenItIsFirstRead) {
  DropoutChain chain(3);
  AdamW adamw;  // makes its zeros during the step
  const RecordedStep step = RecordChain(chain, &adamw);
  ExpectPlanRunsLikeRecord(step, PlanNone(step.graph));
  ExpectPlanRunsLikeRecord(step, PlanSegments(step.graph, 1, true));
}

TEST(PlanExecutor, TrainsAsTheUnplannedRunDoes) {
  // Two steps by hand, and the same two by the record of the first with the second's data.
  DropoutChain plain(4), planned(4);
  AdamW by_hand;
  std::vector<Tensor> expected;
  for (uint64_t batch : {5, 6}) {
    Tape tape;
    expected = plain.Step(tape, plain.MakeInput(batch), &by_hand);
  }

  AdamW recorded;
  Tape tape;
  CaptureBindings inputs(tape, CaptureBindings::kShare);
  const Tensor x = planned.MakeInput(5);
  std::vector<Tensor> alive = planned.Step(tape, x, &recorded);
  const Graph graph = tape.Finish();
  PlanBindings bindings = inputs.Take();
  const Plan plan = PlanSqrt(graph);
  ASSERT_EQ(bindings.Bind(graph, "x", planned.MakeInput(6)), absl::OkStatus());
  for (const OptimizerState& s : recorded.state()) {
    ASSERT_EQ(bindings.Bind(graph, s.tensor.storage().name(), s.tensor), absl::OkStatus());
  }
  ASSERT_EQ(bindings.BindRandom(graph, planned.dropout()), absl::OkStatus());
  EXPECT_EQ(*bindings.SetOptimizerAttr(graph, "step", "2"), 4);
  const PlanRun run = MustRun(graph, plan, std::move(bindings));
  for (size_t i = 0; i < planned.params().size(); ++i) {
    EXPECT_TRUE(BitEqual(planned.params()[i], plain.params()[i])) << i;
  }
  EXPECT_EQ(run.outputs[0].ToDoubles(), expected[0].ToDoubles());  // the loss
  EXPECT_EQ(run.rng[0].offset, plain.dropout().offset());
}

TEST(PlanExecutor, LeavesNothingBehindInAHundredSteps) {
  DropoutChain chain(4);
  AdamW adamw;
  const RecordedStep step = RecordChain(chain, &adamw);
  const Plan plan = PlanSqrt(step.graph);
  const absl::StatusOr<PlanExecutor> executor = PlanExecutor::Create(step.graph, plan);
  ASSERT_EQ(executor.status(), absl::OkStatus());
  PlanBindings state = step.bindings.Copy();
  const int64_t before = ThreadMemory(DeviceKind::kCpu).live;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(executor->Run(state).status(), absl::OkStatus());
    ASSERT_EQ(ThreadMemory(DeviceKind::kCpu).live, before) << "after step " << i;
  }
}

TEST(PlanExecutor, RunsOnTheCpuWhatWasRecordedOnMeta) {
  DropoutChain meta(3, 16, 0.5, kMeta), cpu(3);
  const RecordedStep sizes = RecordChain(meta);
  ExpectPlanRunsLikeRecord(sizes, PlanSqrt(sizes.graph));  // on meta: bytes and costs
  const RecordedStep step = RecordChain(cpu);
  PlanBindings bindings;
  for (const auto& [value, tensor] : step.bindings.Copy().values) {
    bindings.Bind(value, tensor);
  }
  const PlanRun run = MustRun(sizes.graph, PlanSqrt(sizes.graph), std::move(bindings));
  for (const auto& [storage, expected] : step.result) {
    for (size_t i = 0; i < run.outputs.size(); ++i) {
      if (sizes.graph.values[sizes.graph.outputs[i]].storage != storage) continue;
      EXPECT_TRUE(BitEqual(internal::CopyStorage(run.outputs[i]), expected));
    }
  }
}

// What the tape itself ran again are nodes like any other.
TEST(PlanExecutor, RunsARecordWithCheckpoints) {
  Random dropout(9, RandomStream::kDropout);
  const Tensor w = Tensor::Full({DType::kF32, {8, 8}}, 0.2), x = Tensor::Ones(w.spec());
  const RecordedStep step = RecordStep(
      [&](Tape& tape) {
        tape.Watch(w);
        Tensor y = x;
        for (int i = 0; i < 4; ++i) {
          y = Checkpoint([&] { return Dropout(Gelu(Linear(y, w)), 0.5, dropout); });
        }
        const Tensor loss = Sum(y);
        return std::vector<Tensor>{loss, tape.Gradient(loss, w)};
      },
      {&dropout});
  const auto again = [](const Node& node) { return node.phase == Phase::kRecompute; };
  EXPECT_GT(std::count_if(step.graph.nodes.begin(), step.graph.nodes.end(), again), 0);
  ExpectPlanRunsLikeRecord(step, PlanNone(step.graph));
}

// y is dropped and made again while the mask of the same node is kept.
TEST(PlanExecutor, WritesAgainWhatIsStillThere) {
  Random dropout(7, RandomStream::kDropout);
  const Tensor x = Tensor::Full({DType::kF32, {1000}}, 2);
  const RecordedStep step = RecordStep(
      [&](Tape& tape) {
        tape.Watch(x);
        const Tensor y = Dropout(x, 0.25, dropout);
        const Tensor loss = Sum(Square(y));
        return std::vector<Tensor>{loss, tape.Gradient(loss, x)};
      },
      {&dropout});
  const Node& node = step.graph.nodes[0];
  ASSERT_STREQ(node.op->name, "dropout");
  const StorageId y = step.graph.values[step.graph.out(node)[0]].storage;
  Plan plan = PlanNone(step.graph);
  plan.name = "keep the mask";
  // After square has read y: away with it, and again.
  const auto square = std::find(plan.steps.begin(), plan.steps.end(), PlanStep{PlanStep::kRun, 1});
  plan.steps.insert(square + 1, {{PlanStep::kFree, y}, {PlanStep::kRun, 0}});
  ExpectPlanRunsLikeRecord(step, plan);
  EXPECT_EQ(PriceValidPlan(step.graph, plan).extra_nodes, 1);
}

TEST(PlanExecutor, FindsOtherViewsOfWhatAnUpdateWrote) {
  const Tensor w = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const RecordedStep step = RecordStep([&](Tape&) {
    const Tensor turned = Transpose(w, 0, 1);
    const Tensor before = CopyOf(turned);
    {
      ScopedPhase phase(Phase::kOptimizer);
      AddInPlace(w, Tensor::Ones(w.spec()));
    }
    const Tensor after = Mul(turned, before);
    return std::vector<Tensor>{w, before, after};
  });
  ExpectPlanRunsLikeRecord(step, PlanNone(step.graph));
}

TEST(TimeNodes, GivesSecondsToWhatRuns) {
  DropoutChain chain(2, 64);
  const RecordedStep step = RecordChain(chain);
  const Plan plan = PlanNone(step.graph);
  const absl::StatusOr<PlanExecutor> executor = PlanExecutor::Create(step.graph, plan);
  ASSERT_EQ(executor.status(), absl::OkStatus());
  const absl::StatusOr<std::vector<double>> seconds = TimeNodes(*executor, step.bindings, 3);
  ASSERT_EQ(seconds.status(), absl::OkStatus());
  ASSERT_EQ(seconds->size(), step.graph.nodes.size());
  for (size_t n = 0; n < seconds->size(); ++n) {
    const bool view = step.graph.nodes[n].op->kind == OpKind::kView;
    EXPECT_EQ((*seconds)[n] > 0, !view) << n;
  }
}

TEST(MeasureCosts, TimesARecordOfMetaWithStandIns) {
  DropoutChain chain(2, 64, 0.5, kMeta);
  const RecordedStep step = RecordChain(chain);
  const absl::StatusOr<PlanBindings> bindings = StandInBindings(step.graph, kCpu);
  ASSERT_EQ(bindings.status(), absl::OkStatus());
  const absl::StatusOr<NodeCosts> costs = MeasureCosts(step.graph, *bindings);
  ASSERT_EQ(costs.status(), absl::OkStatus());
  EXPECT_EQ(costs->unit, NodeCosts::kSeconds);
  ASSERT_EQ(costs->of.size(), step.graph.nodes.size());
  EXPECT_GT(costs->of[0], 0);
  EXPECT_EQ(MeasureCosts(step.graph, step.bindings).status().message(),
            "measured costs: the bindings are on meta, where nothing runs; bind tensors on cpu");
  EXPECT_EQ(MeasureCosts(step.graph, *bindings, 0).status().message(),
            "measured costs: 0 runs; at least one is timed");
}

TEST(StandInBindings, WillNotGuessWhereViewsLie) {
  const Tensor w = Tensor::Zeros({DType::kF32, {4}}, kMeta);
  const Tensor low = Slice(w, 0, 0, 2), high = Slice(w, 0, 2, 4);
  const RecordedStep one = RecordStep([&](Tape&) { return std::vector<Tensor>{Square(high)}; });
  const absl::StatusOr<PlanBindings> bindings = StandInBindings(one.graph, kCpu);
  ASSERT_EQ(bindings.status(), absl::OkStatus());
  EXPECT_EQ(bindings->values[0].second.storage().bytes(), 16);  // of all of w
  const RecordedStep two = RecordStep([&](Tape&) { return std::vector<Tensor>{Mul(low, high)}; });
  EXPECT_EQ(StandInBindings(two.graph, kCpu).status().message(),
            "bindings: %0 (f32[2]) and %1 (f32[2]) are views of one storage, and the record does "
            "not tell where in it they lie");
}

TEST(PlanExecutor, RunsTenThousandLayersOnASmallStack) {
  OnASmallStack([] {
    const Tensor w = Tensor::Full({DType::kF32, {2}}, 1.0001);
    const RecordedStep step = RecordStep([&](Tape& tape) {
      tape.Watch(w);
      Tensor x = Tensor::Ones(w.spec());
      for (int i = 0; i < 10000; ++i) {
        const Scope scope("h." + std::to_string(i));
        x = Tanh(Mul(x, w));
      }
      const Tensor loss = Sum(x);
      return std::vector<Tensor>{loss, tape.Gradient(loss, w)};
    });
    const Plan plan = PlanSqrt(step.graph);
    EXPECT_LT(PriceValidPlan(step.graph, plan).peak_bytes * 20,
              PriceValidPlan(step.graph, PlanNone(step.graph)).peak_bytes);
    ExpectPlanRunsLikeRecord(step, plan);
  });
}

TEST(PlanExecutor, RunsTenThousandBranchesOnASmallStack) {
  OnASmallStack([] {
    const Tensor w = Tensor::Full({DType::kF32, {2}}, 0.5);
    const RecordedStep step = RecordStep([&](Tape& tape) {
      tape.Watch(w);
      Tensor sum = Tensor::Zeros(w.spec());
      for (int i = 0; i < 10000; ++i) {
        const Scope scope("branch." + std::to_string(i));
        sum = Add(sum, Tanh(Sin(w)));
      }
      const Tensor loss = Sum(sum);
      return std::vector<Tensor>{loss, tape.Gradient(loss, w)};
    });
    ExpectPlanRunsLikeRecord(step, PlanSegments(step.graph, 1, true));
  });
}

}  // namespace
}  // namespace tally
