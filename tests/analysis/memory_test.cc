#include "tally/analysis/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpt_step.h"
#include "graph_builder.h"

namespace tally {
namespace {

TensorSpec Bytes(int64_t bytes) { return {DType::kU8, {bytes}}; }

// A 100-byte parameter; a: 40 bytes; b: 60 bytes from a; then a is freed and c: 10 bytes comes.
Graph Small() {
  GraphBuilder g;
  const ValueId w = g.Input(Bytes(100), Origin::kParameter, "w");
  const ScopeId scope = g.Scope("block");
  const ValueId a = g.Node(kUnit, {w}, Bytes(40), {.scope = scope});
  const ValueId b = g.Node(kUnit, {a}, Bytes(60), {.scope = scope});
  g.Free(a);
  const ValueId c = g.Node(kUnit, {b}, Bytes(10), {});
  g.g.outputs = {c};
  g.g.baseline_bytes = 7;
  return g.g;
}

TEST(Memory, PeaksWhereTheMostIsLive) {
  const MemoryReport report = AnalyzeMemory(Small());
  EXPECT_EQ(report.peak_bytes, 100 + 40 + 60);
  EXPECT_EQ(report.peak_node, 1);
  EXPECT_EQ(report.end_bytes, 100 + 60 + 10);
  EXPECT_EQ(report.baseline_bytes, 7);
}

TEST(Memory, ListsWhatLivesAtThePeakLargestFirst) {
  const MemoryReport report = AnalyzeMemory(Small());
  ASSERT_EQ(report.at_peak.size(), 3u);
  EXPECT_EQ(report.at_peak[0].name, "w");
  EXPECT_EQ(report.at_peak[0].origin, Origin::kParameter);
  EXPECT_EQ(report.at_peak[1].bytes, 60);
  EXPECT_EQ(report.at_peak[1].producer, 1);
  EXPECT_EQ(report.at_peak[1].scope, 1);
  EXPECT_EQ(report.at_peak[2].bytes, 40);
}

TEST(Memory, SplitsThePeakByOrigin) {
  const MemoryReport report = AnalyzeMemory(Small());
  EXPECT_EQ(report.peak_by_origin[static_cast<size_t>(Origin::kParameter)], 100);
  EXPECT_EQ(report.peak_by_origin[static_cast<size_t>(Origin::kActivation)], 40 + 60);
}

TEST(Memory, DrawsACurveOverTheNodes) {
  EXPECT_THAT(AnalyzeMemory(Small()).curve, testing::ElementsAre(140, 200, 170, 170));
}

TEST(Memory, NoneFreesAtTheLastUse) {
  // x (8) -> a (8) -> b (8) -> c (8), all kept by their handles: 32. Last-use liveness needs two
  // at a time next to x, which outlives the record.
  GraphBuilder g;
  ValueId v = g.Input(Bytes(8));
  for (int i = 0; i < 3; ++i) v = g.Node(kUnit, {v}, Bytes(8), {});
  for (ValueId kept : {1, 2}) g.Free(kept);
  g.g.outputs = {v};
  const MemoryReport report = AnalyzeMemory(g.g);
  EXPECT_EQ(report.peak_bytes, 32);
  EXPECT_EQ(report.none.peak_bytes, 24);
}

TEST(Memory, CountsScratchWhileItsNodeRuns) {
  GraphBuilder g;
  const ValueId x = g.Input(Bytes(8));
  g.Node(kUnit, {x}, Bytes(8), {});
  g.g.storages.push_back({100, Origin::kScratch});
  const StorageId scratch = static_cast<StorageId>(g.g.storages.size()) - 1;
  g.g.events.push_back({StorageEvent::kAllocate, scratch, 0});
  g.g.events.push_back({StorageEvent::kFree, scratch, 0});
  const MemoryReport report = AnalyzeMemory(g.g);
  EXPECT_EQ(report.peak_bytes, 8 + 8 + 100);
  EXPECT_EQ(report.none.peak_bytes, 8 + 8 + 100);
  EXPECT_EQ(report.none.peak_by_origin[static_cast<size_t>(Origin::kScratch)], 100);
}

TEST(Memory, OfAnEmptyGraphIsZero) {
  const MemoryReport report = AnalyzeMemory(GraphBuilder().g);
  EXPECT_EQ(report.peak_bytes, 0);
  EXPECT_EQ(report.peak_node, kNone);
  EXPECT_TRUE(report.at_peak.empty());
}

TEST(Memory, OfAGptIsTheSameOnCpuAndMeta) {
  const GptSizes sizes{
      .batch = 2, .seq = 8, .context = 8, .vocab = 32, .layers = 2, .width = 16, .heads = 2};
  const MemoryReport meta = AnalyzeMemory(GptStep(sizes, kMeta).Record());
  const MemoryReport cpu = AnalyzeMemory(GptStep(sizes, kCpu).Record());
  EXPECT_EQ(cpu.peak_bytes, meta.peak_bytes);
  EXPECT_EQ(cpu.peak_node, meta.peak_node);
  EXPECT_EQ(cpu.curve, meta.curve);
  EXPECT_EQ(cpu.none.peak_bytes, meta.none.peak_bytes);
}

TEST(Memory, IsLinearInAChainOf100000Nodes) {
  GraphBuilder g;
  ValueId v = g.Input(Bytes(4));
  for (int i = 0; i < 100'000; ++i) v = g.Node(kUnit, {v}, Bytes(4), {});
  g.g.outputs = {v};
  const MemoryReport report = AnalyzeMemory(g.g);
  EXPECT_EQ(report.peak_bytes, 400'004);
}

}  // namespace
}  // namespace tally
