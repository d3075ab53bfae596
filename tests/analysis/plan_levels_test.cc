// Planners by rule against the published tables.
#include "tally/analysis/plan_levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "chain_graphs.h"
#include "tally/analysis/chain_segments.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Equal layers of one node; a tape of no bytes is still made anew, as memory model "M1" wants.
CostedGraph Layers(int count, int64_t tape, int64_t gradient) {
  ChainLayer layer;
  layer.tape = {tape};
  layer.gradient = gradient;
  return LayerGraph(std::vector<ChainLayer>(count, layer), 1, gradient);
}

PlanPrice Price(const Graph& graph, const Plan& plan) {
  const absl::StatusOr<PlanPrice> price = PricePlan(graph, plan);
  EXPECT_TRUE(price.ok()) << plan.name << ": " << price.status();
  return price.value_or(PlanPrice{});
}
int64_t PeakUnits(const Graph& graph, const Plan& plan) {
  const int64_t peak = Price(graph, plan).peak_bytes;
  EXPECT_EQ(peak % kUnitBytes, 0);
  return peak / kUnitBytes;
}

// The plan with these segments of layers; what follows the layers joins the last.
Plan Segments(const Graph& graph, const std::vector<int>& lengths) {
  const LayerChain chain = *FindChain(graph);
  NodeCosts costs = FlopCosts(graph);
  std::vector<int> cuts;
  int first = 0;
  for (const int length : lengths) {
    cuts.push_back(first);
    first += length;
  }
  return PlanSegmentsAt(graph, chain, ModelChain(graph, chain, costs), {cuts});
}

struct SegmentsRow {
  int layers, tape;
  int64_t best_uniform, best_length, triangular, store_all;
};

class SegmentTable : public testing::TestWithParam<SegmentsRow> {};

// Model M1: gradients not counted; x_0 is.
INSTANTIATE_TEST_SUITE_P(
    Published, SegmentTable,
    testing::Values(SegmentsRow{4, 0, 4, 2, 4, 5}, SegmentsRow{9, 0, 6, 2, 5, 10},
                    SegmentsRow{10, 0, 6, 3, 5, 11}, SegmentsRow{16, 0, 8, 3, 7, 17},
                    SegmentsRow{64, 0, 16, 6, 12, 65}, SegmentsRow{100, 0, 20, 8, 15, 101},
                    SegmentsRow{4, 1, 6, 1, 5, 9}, SegmentsRow{9, 1, 8, 2, 7, 19},
                    SegmentsRow{10, 1, 9, 2, 8, 21}, SegmentsRow{16, 1, 11, 3, 9, 33},
                    SegmentsRow{64, 1, 22, 5, 17, 129}, SegmentsRow{100, 1, 28, 6, 21, 201},
                    SegmentsRow{4, 2, 7, 1, 7, 13}, SegmentsRow{9, 2, 10, 2, 9, 28},
                    SegmentsRow{10, 2, 11, 2, 10, 31}, SegmentsRow{16, 2, 14, 2, 12, 49},
                    SegmentsRow{64, 2, 27, 5, 22, 193}, SegmentsRow{100, 2, 34, 6, 26, 301},
                    SegmentsRow{4, 4, 9, 1, 9, 21}, SegmentsRow{9, 4, 14, 1, 12, 46},
                    SegmentsRow{10, 4, 15, 1, 13, 51}, SegmentsRow{16, 4, 18, 2, 16, 81},
                    SegmentsRow{64, 4, 36, 3, 28, 321}, SegmentsRow{100, 4, 45, 4, 35, 501}));

TEST_P(SegmentTable, HoldsForUniformAndTriangularPlans) {
  const SegmentsRow row = GetParam();
  const CostedGraph chain = Layers(row.layers, row.tape, 0);
  EXPECT_EQ(PeakUnits(chain.graph, PlanNone(chain.graph)), row.store_all);
  EXPECT_EQ(PeakUnits(chain.graph, PlanTriangular(chain.graph)), row.triangular);
  EXPECT_LE(Price(chain.graph, PlanTriangular(chain.graph)).extra_nodes, row.layers);
  int64_t best = row.store_all, best_length = 0;
  for (int k = 1; k <= std::min(row.layers, 12); ++k) {
    const int64_t peak = PeakUnits(chain.graph, PlanUniform(chain.graph, k));
    if (peak >= best) continue;
    best = peak;
    best_length = k;
  }
  EXPECT_EQ(best, row.best_uniform);
  EXPECT_EQ(best_length, row.best_length);
  // Both gradients counted, model M2: one more.
  const CostedGraph counted = Layers(row.layers, row.tape, 1);
  EXPECT_EQ(PeakUnits(counted.graph, PlanTriangular(counted.graph)), row.triangular + 1);
}

TEST(Segments, AreWhatTheClosedFormSays) {
  // M1 = max over segments of j + k_j (1 + a), however the chain is cut.
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const int tape = static_cast<int>(random() % 4);
    std::vector<int> lengths;
    int layers = 0;
    for (unsigned i = 0, count = 1 + random() % 5; i < count; ++i) {
      lengths.push_back(1 + static_cast<int>(random() % 5));
      layers += lengths.back();
    }
    int64_t expected = 0;
    for (size_t j = 0; j < lengths.size(); ++j) {
      expected = std::max(expected, int64_t(j) + 1 + lengths[j] * (1 + tape));
    }
    const CostedGraph chain = Layers(layers, tape, 0);
    const Plan plan = Segments(chain.graph, lengths);
    EXPECT_EQ(PeakUnits(chain.graph, plan), expected) << testing::PrintToString(lengths);
    EXPECT_EQ(Price(chain.graph, plan).extra_nodes, layers - lengths.back());
  }
}

TEST(Segments, BalancedSplitsBeatTheRemainderAtTheEnd) {
  // 9 layers in 5 segments: what checkpoint_sequential does, and what it could.
  const CostedGraph bare = Layers(9, 0, 0), taped = Layers(9, 3, 0);
  EXPECT_EQ(PeakUnits(bare.graph, Segments(bare.graph, {1, 1, 1, 1, 5})), 10);
  EXPECT_EQ(PeakUnits(bare.graph, Segments(bare.graph, {1, 2, 2, 2, 2})), 7);
  EXPECT_EQ(PeakUnits(bare.graph, Segments(bare.graph, {2, 2, 2, 2, 1})), 6);
  EXPECT_EQ(PeakUnits(bare.graph, PlanTriangular(bare.graph)), 5);
  EXPECT_EQ(PeakUnits(taped.graph, Segments(taped.graph, {1, 1, 1, 1, 5})), 25);
  EXPECT_EQ(PeakUnits(taped.graph, Segments(taped.graph, {2, 2, 2, 2, 1})), 12);
}

TEST(Uniform, TakesTheRemainderLast) {
  const Graph graph = UnitChain(24, 0);
  std::vector<size_t> lengths;
  for (const PlanSegment& s : PlanUniform(graph, 7).segments) lengths.push_back(s.blocks.size());
  EXPECT_THAT(lengths, ElementsAre(7, 7, 7, 3));
}

TEST(Levels, OfAThousandUnitLayers) {
  // M1: sqrt 63, triangular 46: the least M with M (M - 1) / 2 >= 1000; 1,001 stored.
  const CostedGraph chain = Layers(1000, 0, 0);
  EXPECT_EQ(PeakUnits(chain.graph, PlanNone(chain.graph)), 1001);
  EXPECT_EQ(PeakUnits(chain.graph, PlanSqrt(chain.graph)), 63);
  EXPECT_EQ(PeakUnits(chain.graph, PlanTriangular(chain.graph)), 46);
  // With floor(log2 1000) = 9 states binomial schedules rerun less than halving's 500 * 9.
  EXPECT_LT(Price(chain.graph, PlanLog(chain.graph)).extra_nodes, 500 * 9);
}

TEST(Levels, TakeTenThousandLayers) {
  // Neighbours are merged where there are more stages than planners for chains take.
  const CostedGraph chain = EqualLayers(10'000, 0);
  const int64_t none = Price(chain.graph, PlanNone(chain.graph)).peak_bytes;
  for (const Plan& plan : {PlanSqrt(chain.graph), PlanTriangular(chain.graph), PlanLog(chain.graph),
                           PlanRevolve(chain.graph, 20)}) {
    EXPECT_LT(Price(chain.graph, plan).peak_bytes, none / 10) << plan.name;
  }
  EXPECT_THAT(FindChain(chain.graph)->note, HasSubstr("merged from 10001"));
}

TEST(RunsOf, AreWhatThePlanWasMadeOf) {
  const Graph graph = Layers(4, 1, 0).graph;
  std::vector<NodeId> runs;
  for (size_t n = 0; n < graph.nodes.size(); ++n) runs.push_back(static_cast<NodeId>(n));
  EXPECT_EQ(RunsOf(PlanFromRuns(graph, runs)), runs);
  EXPECT_TRUE(RerunsOf(graph, PlanFromRuns(graph, runs)).empty());
  // Nodes 1 and 0 again, the first of them twice, right after they ran.
  runs.insert(runs.begin() + 2, {1, 0, 1});
  EXPECT_EQ(RunsOf(PlanFromRuns(graph, runs)), runs);
  EXPECT_THAT(RerunsOf(graph, PlanFromRuns(graph, runs)), ElementsAre(1, 0, 1));
}

TEST(SqrtVerdict, SaysWhyGpt3LayersWantSegmentsOfOne) {
  // A GPT-3 layer in fp16 keeps 114 sbh of which 2 sbh are its boundary: a = 56.
  const Graph graph = Layers(96, 56, 0).graph;
  const absl::StatusOr<SqrtVerdict> verdict = JudgeSqrt(graph);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->sqrt_length, 10);
  EXPECT_EQ(verdict->best_length, 1);
  EXPECT_EQ(verdict->sqrt_peak, 579 * kUnitBytes);
  EXPECT_EQ(verdict->best_peak, 153 * kUnitBytes);
  EXPECT_TRUE(verdict->loses());
  EXPECT_EQ(verdict->blocks, 96);
  EXPECT_EQ(verdict->tape_bytes, 56 * verdict->boundary_bytes);
  const absl::StatusOr<SqrtVerdict> bare = JudgeSqrt(Layers(16, 0, 1).graph);
  ASSERT_TRUE(bare.ok());
  EXPECT_FALSE(bare->loses());
}

// t(l,c), advances of Griewank and Walther's schedules.
struct Advances {
  int steps, snapshots;
  int64_t advances;
};
constexpr Advances kAdvances[] = {
    {2, 1, 1},      {3, 1, 3},      {4, 2, 4},     {5, 2, 6},     {9, 3, 13},    {10, 1, 45},
    {10, 2, 20},    {10, 3, 15},    {10, 4, 14},   {10, 9, 9},    {14, 3, 27},   {16, 4, 27},
    {64, 4, 200},   {64, 8, 137},   {64, 16, 110}, {100, 3, 490}, {100, 5, 316}, {100, 10, 222},
    {100, 13, 185}, {100, 20, 178}, {250, 25, 473}};

TEST(Revolve, RunsWhatTheBinomialFormulaSays) {
  for (const Advances& a : kAdvances) {
    EXPECT_EQ(BinomialAdvances(a.steps, a.snapshots), a.advances) << a.steps << " " << a.snapshots;
    // Every step's gradient needs a recording run of its own (a tape): all advances are extra.
    const CostedGraph taped = Layers(a.steps, 1, 1);
    EXPECT_EQ(Price(taped.graph, PlanRevolve(taped.graph, a.snapshots)).extra_nodes, a.advances);
    // Gradients read x_{i-1} alone: no recording runs. c + 3 units when the states are all used.
    const CostedGraph bare = EqualLayers(a.steps, 0);
    const Plan plan = PlanRevolve(bare.graph, a.snapshots);
    EXPECT_EQ(Price(bare.graph, plan).extra_nodes, a.advances - (a.steps - 1));
    EXPECT_LE(PeakUnits(bare.graph, plan), a.snapshots + 3);
  }
  EXPECT_EQ(BinomialAdvances(1000, 10), 3636);
  // With halving's log2 n states: below its (n / 2) log2 n.
  EXPECT_EQ(BinomialAdvances(64, 6), 156);
  EXPECT_EQ(BinomialAdvances(256, 8), 804);
  EXPECT_EQ(BinomialAdvances(1024, 10), 3755);
}

TEST(Revolve, AgreesWithItsRecurrence) {
  // t(l,c) = min over i of i + t(i,c) + t(l-i,c-1).
  std::vector<std::vector<int64_t>> t(41, std::vector<int64_t>(9, 0));
  for (int l = 2; l <= 40; ++l) {
    t[l][1] = l * (l - 1) / 2;
    for (int c = 2; c <= 8; ++c) {
      t[l][c] = t[l][1];
      for (int i = 1; i < l; ++i) t[l][c] = std::min(t[l][c], i + t[i][c] + t[l - i][c - 1]);
    }
    for (int c = 1; c <= 8; ++c) EXPECT_EQ(BinomialAdvances(l, c), t[l][c]) << l << " " << c;
  }
}

}  // namespace
}  // namespace tally
