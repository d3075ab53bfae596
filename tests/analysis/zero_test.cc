#include "tally/analysis/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph_builder.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

TensorSpec Bytes(int64_t bytes) { return {DType::kU8, {bytes}}; }

// One parameter of `n` elements, its gradient, and AdamW's f32 moments and master weights: what a
// step under `mixed` holds, with next to nothing besides.
Graph MixedStep(int64_t n) {
  GraphBuilder g;
  const TensorSpec narrow{DType::kBF16, {n}}, wide{DType::kF32, {n}};
  const ValueId w = g.Input(narrow, Origin::kParameter, "w");
  std::vector<ValueId> read = {w};
  for (const char* state : {"w.master", "w.exp_avg", "w.exp_avg_sq"})
    read.push_back(g.Input(wide, Origin::kOptimizerState, state));
  const ValueId loss = g.Node(kUnit, {w}, Bytes(1), {.saves = {w}});
  read.push_back(
      g.Node(kUnit, {w}, narrow,
             {.phase = Phase::kBackward, .serves = g.last(), .origin = Origin::kGradient}));
  g.Node(kUnit, read, Bytes(1), {.phase = Phase::kOptimizer, .origin = Origin::kScratch});
  g.g.values[w].watched = true;
  g.g.loss = loss;
  g.g.gradients = {read.back()};
  g.g.gradient_of = {w};
  g.g.outputs = {loss};
  return g.g;
}

TEST(Zero, HoldsThePublishedBytesOfSevenAndAHalfBillionParameters) {
  // Rajbhandari et al. 2020, figure 1 and table 1: 2Ψ + 2Ψ + 12Ψ bytes, Ψ = 7.5e9, in GB = 1e9.
  const double psi = 7.5;
  const Graph graph = MixedStep(7'500'000'000);
  for (int64_t ranks : {1, 4, 16, 64, 256, 1024}) {
    const double n = static_cast<double>(ranks);
    const double gigabytes[] = {16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n,
                                16 * psi / n};
    for (int stage = 0; stage <= 3; ++stage) {
      const ZeroReport report = ApplyZero(graph, {.ranks = ranks, .stage = stage});
      // A part is a whole number of elements, so a rank holds less than one more of each row.
      EXPECT_NEAR(static_cast<double>(report.states.total()) / 1e9, gigabytes[stage], 16e-9)
          << "stage " << stage << " on " << ranks;
    }
  }
  EXPECT_EQ(ApplyZero(graph, {.ranks = 64, .stage = 0}).states.total(), 120'000'000'000);
  EXPECT_EQ(ApplyZero(graph, {.ranks = 64, .stage = 1}).states.total(), 31'406'250'000);
  EXPECT_EQ(ApplyZero(graph, {.ranks = 64, .stage = 2}).states.total(), 16'640'625'000);
  EXPECT_EQ(ApplyZero(graph, {.ranks = 64, .stage = 3}).states.total(), 1'875'000'000);
}

TEST(Zero, SendsTwiceTheParametersAndAtStageThreeThreeTimes) {
  const int64_t psi = 7'500'000'000, ranks = 64;
  // bf16, and the ring's (N-1)/N; 64 divides Ψ.
  const Count once = Count(2) * psi / ranks * (ranks - 1);
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(ApplyZero(MixedStep(psi), {.ranks = ranks, .stage = stage}).sent(),
              once * (stage == 3 ? 3 : 2));
  }
  EXPECT_EQ(ApplyZero(MixedStep(psi), {.ranks = 1, .stage = 3}).sent(), 0);
}

// Deals the elements out one by one: the smallest parts that take them all, filled in order.
std::vector<int64_t> Deal(int64_t elements, int64_t ranks) {
  int64_t part = 0;
  while (part * ranks < elements) ++part;
  std::vector<int64_t> held(ranks, 0);
  int64_t rank = 0;
  for (int64_t i = 0; i < elements; ++i) {
    if (held[rank] == part) ++rank;
    ++held[rank];
  }
  return held;
}

TEST(Zero, PartitionsOddSizesAsDealtOutOneByOne) {
  for (int64_t elements = 0; elements <= 67; ++elements) {
    for (int64_t ranks = 1; ranks <= 9; ++ranks) {
      const Partition p = PartitionOf(elements, ranks);
      const std::vector<int64_t> dealt = Deal(elements, ranks);
      int64_t padding = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        EXPECT_EQ(p.held(r), dealt[r]) << elements << " over " << ranks << ", rank " << r;
        padding += dealt[0] - dealt[r];
      }
      EXPECT_EQ(p.part, dealt[0]);
      EXPECT_EQ(p.padding, padding);
    }
  }
}

TEST(Zero, PadsEachRowToAMultipleOfTheRanks) {
  // 1,000,003 = 8 · 125,000 + 3: parts of 125,001, five elements of padding, the last rank's part
  // short of them.
  const ZeroReport report = ApplyZero(MixedStep(1'000'003), {.ranks = 8, .stage = 3});
  ASSERT_EQ(report.groups.size(), 5u);
  for (const FlatGroup& group : report.groups) {
    EXPECT_EQ(group.partition.part, 125'001);
    EXPECT_EQ(group.partition.padding, 5);
    EXPECT_EQ(group.partition.held(6), 125'001);
    EXPECT_EQ(group.partition.held(7), 125'001 - 5);
  }
  EXPECT_EQ(report.states.total(), 125'001 * (2 + 2 + 4 + 4 + 4));
  EXPECT_EQ(report.padding_bytes, 5 * (2 + 2 + 4 + 4 + 4));
  EXPECT_EQ(report.sent(), Count(3) * 7 * 125'001 * 2);
}

// Two blocks and what is around them, of 1-byte elements: wr 30 B in the rest, w0 100 B in h.0, w1
// 60 B in h.1; x and four activations of 8 B that all stay; one moment a parameter.
//   0 rest, 1 h.0, 2 h.1, 3 rest; backward 4 rest, 5 h.1, 6 h.0; 7 optimizer, which makes 8 B
Graph TwoBlocks() {
  GraphBuilder g;
  const ScopeId h0 = g.Scope("h.0"), h1 = g.Scope("h.1");
  const ValueId x = g.Input(Bytes(8));
  const ValueId wr = g.Input(Bytes(30), Origin::kParameter, "wr"),
                w0 = g.Input(Bytes(100), Origin::kParameter, "w0"),
                w1 = g.Input(Bytes(60), Origin::kParameter, "w1");
  std::vector<ValueId> read = {g.Input(Bytes(30), Origin::kOptimizerState, "wr.sum"),
                               g.Input(Bytes(100), Origin::kOptimizerState, "w0.sum"),
                               g.Input(Bytes(60), Origin::kOptimizerState, "w1.sum")};
  const ValueId e = g.Node(kUnit, {x, wr}, Bytes(8), {.saves = {x}});
  const ValueId a0 = g.Node(kUnit, {e, w0}, Bytes(8), {.scope = h0, .saves = {e, w0}});
  const ValueId a1 = g.Node(kUnit, {a0, w1}, Bytes(8), {.scope = h1, .saves = {a0, w1}});
  const ValueId loss = g.Node(kUnit, {a1, wr}, Bytes(8), {.saves = {a1, wr}});
  const auto gradient = [&](NodeId serves, ScopeId scope, std::vector<ValueId> in, int64_t bytes) {
    const ValueId v = g.Node(
        kUnit, in, Bytes(bytes),
        {.phase = Phase::kBackward, .serves = serves, .scope = scope, .origin = Origin::kGradient});
    read.push_back(v);
    g.g.gradients.push_back(v);
    return v;
  };
  gradient(3, 0, {a1, wr}, 30);
  gradient(2, h1, {a0, w1}, 60);
  gradient(1, h0, {e, w0}, 100);
  g.g.gradient_of = {wr, w1, w0};
  g.Node(kUnit, read, Bytes(8), {.phase = Phase::kOptimizer, .origin = Origin::kScratch});
  g.g.loss = loss;
  g.g.outputs = {loss};
  return g.g;
}

TEST(Zero, AtStageZeroIsTheRecord) {
  const ZeroReport report = ApplyZero(TwoBlocks(), {.ranks = 4});
  EXPECT_EQ(report.peak_bytes, 190 + 190 + 5 * 8 + 190 + 8);
  EXPECT_EQ(report.peak_bytes, BudgetOf(TwoBlocks()).peak_bytes);
  EXPECT_EQ(report.parts.bytes, BudgetOf(TwoBlocks()).parts.bytes);
  // 190 B are 192 on 4 ranks; an all-reduce sends 2 · 3/4 of them.
  EXPECT_EQ(report.sent(), 2 * 3 * 48);
}

TEST(Zero, OnOneRankIsTheRecordAtEveryStage) {
  for (int stage = 1; stage <= 3; ++stage) {
    const ZeroReport report = ApplyZero(TwoBlocks(), {.ranks = 1, .stage = stage});
    EXPECT_EQ(report.peak_bytes, 190 + 190 + 5 * 8 + 190 + 8);
    EXPECT_EQ(report.gathered, 0);
    EXPECT_EQ(report.sent(), 0);
  }
}

TEST(Zero, SplitsTheOptimizerThenTheGradients) {
  const ZeroReport one = ApplyZero(TwoBlocks(), {.ranks = 4, .stage = 1});
  // Moments in parts of 48; everything else as recorded, the most at the optimizer.
  EXPECT_EQ(one.peak_bytes, 190 + 48 + 5 * 8 + 190 + 8);
  EXPECT_EQ(one.peak_node, 7);
  const ZeroReport two = ApplyZero(TwoBlocks(), {.ranks = 4, .stage = 2});
  // At h.0's backward: the part of the gradients, and the 100 B that are not reduced yet.
  EXPECT_EQ(two.peak_bytes, 190 + 48 + 5 * 8 + 48 + 100);
  EXPECT_EQ(two.peak_node, 6);
  EXPECT_EQ(two.unreduced, 100);
  EXPECT_EQ(two.unreduced_unit, "h.0");
  EXPECT_EQ(two.parts[BudgetPart::kTransient], 100 + 3 * 8);  // and what is read no more
  EXPECT_EQ(two.parts.total(), two.peak_bytes);
}

TEST(Zero, GathersAUnitAndTheNext) {
  const ZeroReport ahead = ApplyZero(TwoBlocks(), {.ranks = 4, .stage = 3});
  // At h.1's backward: parts of parameters, moments and gradients; x and the four activations; h.1
  // gathered and h.0 ahead; h.1's gradient whole.
  EXPECT_EQ(ahead.peak_bytes, 3 * 48 + 5 * 8 + (60 + 100) + 60);
  EXPECT_EQ(ahead.peak_node, 5);
  EXPECT_EQ(ahead.gathered, 100 + 60);
  EXPECT_EQ(ahead.parts.total(), ahead.peak_bytes);
  // Without: h.0's backward, which gathers 100 and makes 100.
  const ZeroReport alone = ApplyZero(TwoBlocks(), {.ranks = 4, .stage = 3, .prefetch = false});
  EXPECT_EQ(alone.peak_bytes, 3 * 48 + 5 * 8 + 100 + 100);
  EXPECT_EQ(alone.gathered, 100);
  EXPECT_EQ(alone.gathered_unit, "h.0");
  EXPECT_EQ(alone.gathered_next, "");
}

TEST(Zero, KnowsItsUnits) {
  const ZeroReport report = ApplyZero(TwoBlocks(), {.ranks = 4, .stage = 3});
  ASSERT_EQ(report.units.size(), 3u);
  EXPECT_EQ(report.units[0].name, "h.0");
  EXPECT_EQ(report.units[0].parameters, 100);
  EXPECT_EQ(report.units[1].gradients, 60);
  EXPECT_EQ(report.units[2].name, "the rest");
  EXPECT_EQ(report.units[2].parameters, 30);
}

TEST(Zero, UnderAPlanWalksThePlan) {
  const Graph graph = TwoBlocks();
  const Plan none = PlanNone(graph);
  const ZeroReport report = ApplyZero(graph, none, {.ranks = 4});
  EXPECT_EQ(report.peak_bytes, PriceValidPlan(graph, none).peak_bytes);
  EXPECT_EQ(report.parts.total(), report.peak_bytes);
}

}  // namespace
}  // namespace tally
