// What the executor refuses, and in which words.
#include <functional>

#include "dropout_chain.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tally/autograd/execute.h"
#include "tally/ops/binary.h"
#include "tally/ops/gather.h"
#include "tally/ops/update.h"
#include "tally/ops/view.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

std::string WhyNot(const Graph& graph, const Plan& plan, PlanBindings bindings) {
  const absl::StatusOr<PlanExecutor> executor = PlanExecutor::Create(graph, plan);
  if (!executor.ok()) return std::string(executor.status().message());
  return std::string(executor->Run(std::move(bindings)).status().message());
}

class Refuses : public testing::Test {
 protected:
  std::string With(const std::function<void(PlanBindings&)>& change) {
    PlanBindings bindings = step_.bindings.Copy();
    change(bindings);
    return WhyNot(step_.graph, plan_, std::move(bindings));
  }

  DropoutChain chain_{2, 4};
  const RecordedStep step_ = RecordChain(chain_);
  const Plan plan_ = PlanNone(step_.graph);
};

TEST_F(Refuses, AMissingBinding) {
  EXPECT_EQ(With([](PlanBindings& b) { b.values.clear(); }),
            "plan none: the input %0 (f32[4,4] of h.0.w) is not bound");
}

TEST_F(Refuses, AnotherSpec) {
  EXPECT_EQ(With([](PlanBindings& b) {
              b.Bind(0, Tensor::Zeros({DType::kF32, {4, 5}}));
            }),
            "plan none: the input %0 (f32[4,4] of h.0.w) is bound to f32[4,5]");
}

TEST_F(Refuses, TwoDevices) {
  EXPECT_THAT(With([](PlanBindings& b) {
                b.Bind(1, Tensor::Zeros({DType::kF32, {4, 4}}, kMeta));
              }),
              HasSubstr("%1 (f32[4,4] of h.1.w) is bound on meta, others on cpu"));
}

TEST_F(Refuses, OneStorageForTwo) {
  EXPECT_THAT(With([](PlanBindings& b) { b.Bind(1, b.values[0].second); }),
              HasSubstr("are bound to one storage; the record had two"));
}

TEST_F(Refuses, ABindingForWhatANodeMakes) {
  const ValueId made = step_.graph.out(step_.graph.nodes[0])[0];
  EXPECT_THAT(With([&](PlanBindings& b) {
                b.Bind(made, Tensor::Zeros({DType::kF32, {8, 4}}));
              }),
              HasSubstr("a binding for %3 (f32[8,4]), which node 0 makes"));
  EXPECT_THAT(With([&](PlanBindings& b) { b.Bind(1000, Tensor()); }),
              HasSubstr("a binding for value 1000, which the record does not have"));
}

TEST_F(Refuses, RandomNumbersOfOtherSequences) {
  EXPECT_EQ(With([](PlanBindings& b) { b.rng.resize(3); }),
            "plan none: 3 places of random numbers are bound; the record has 1");
  EXPECT_THAT(With([](PlanBindings& b) {
                b.rng = {{12, 1, 0}};
              }),
              HasSubstr("bound to seed 12, stream 1; the record took them of seed 11, stream 1"));
  PlanBindings bindings;
  EXPECT_THAT(bindings.BindRandom(step_.graph, Random(99)).message(),
              HasSubstr("took no random numbers of seed 99, stream 3"));
}

TEST_F(Refuses, StridesThatTheRecordDidNotHave) {
  EXPECT_THAT(With([](PlanBindings& b) {
                b.Bind(2, Transpose(Tensor::Zeros({DType::kF32, {4, 8}}), 0, 1));
              }),
              HasSubstr("an operand lies otherwise in memory than it did"));
}

TEST_F(Refuses, NamesThatAreNotOrTwice) {
  PlanBindings bindings;
  EXPECT_EQ(bindings.Bind(step_.graph, "nobody", Tensor()).message(),
            "bindings: the record has no input named nobody");
  Graph twice = step_.graph;
  twice.storages[twice.values[1].storage].name = twice.storages[twice.values[0].storage].name;
  EXPECT_THAT(bindings.Bind(twice, "h.0.w", Tensor()).message(),
              HasSubstr("are both named h.0.w; bind them by their numbers"));
}

TEST_F(Refuses, APlanThatDoesNotValidate) {
  Plan plan = plan_;
  plan.steps.pop_back();
  EXPECT_THAT(PlanExecutor::Create(step_.graph, plan).status().message(),
              HasSubstr("plan none: step"));
}

TEST_F(Refuses, AnOpThatThisProgramDoesNotKnow) {
  Graph foreign = step_.graph;
  foreign.foreign.push_back({.op = "their_gelu"});
  foreign.nodes[2].foreign = 0;
  EXPECT_EQ(PlanExecutor::Create(foreign, plan_).status().message(),
            "plan none: node 2 is a their_gelu, an op that this program does not know; register it "
            "to run the record");
}

TEST_F(Refuses, DataOutOfRangeWithTheNode) {
  const Tensor table = Tensor::Ones({DType::kF32, {3, 2}});
  const Tensor ids = Tensor::FromVector<int64_t>({0, 2}, {2});
  Declare(ids, Origin::kInput, "ids");
  RecordedStep step =
      RecordStep([&](Tape&) { return std::vector<Tensor>{Square(GatherRows(table, ids))}; });
  ASSERT_EQ(step.bindings.Bind(step.graph, "ids", Tensor::FromVector<int64_t>({0, 3}, {2})),
            absl::OkStatus());
  EXPECT_THAT(WhyNot(step.graph, PlanNone(step.graph), step.bindings.Copy()),
              HasSubstr("plan none: node 0: gather_rows: "));
}

TEST_F(Refuses, WhatWasWrittenOutsideTheRecord) {
  const Tensor x = Tensor::Ones({DType::kF32, {4}});
  const RecordedStep step = RecordStep([&](Tape&) {
    const Tensor y = Square(x);
    {
      const NoRecord off;
      FillInPlace(x, 3);
    }
    return std::vector<Tensor>{y, Square(x), x};
  });
  EXPECT_THAT(PlanExecutor::Create(step.graph, PlanNone(step.graph)).status().message(),
              HasSubstr("was written outside the record, during it; it cannot run again"));
}

TEST_F(Refuses, ToGuessAView) {
  const Tensor w = Tensor::FromVector<float>({1, 2, 3, 4}, {4});
  const RecordedStep step = RecordStep([&](Tape&) {
    const Tensor low = Slice(w, 0, 0, 2), high = Slice(w, 0, 2, 4);
    AddInPlace(w, Tensor::Ones(w.spec()));
    return std::vector<Tensor>{w, Mul(high, high), low};
  });
  EXPECT_THAT(WhyNot(step.graph, PlanNone(step.graph), step.bindings.Copy()),
              HasSubstr("several views of it have this spec"));
}

}  // namespace
}  // namespace tally
