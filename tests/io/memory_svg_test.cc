#include "tally/io/memory_svg.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tally/analysis/memory.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/tests/analysis/gpt_step.h"

namespace tally {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Opened tags are closed in order, attributes are quoted, no bare '&'.
void ExpectWellFormed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = 0; at < svg.size();) {
    if (svg[at] == '&') {
      ASSERT_NE(svg.find(';', at), std::string::npos);
      ASSERT_LT(svg.find(';', at) - at, 8u) << svg.substr(at, 20);
    }
    if (svg[at] != '<') {
      ASSERT_NE(svg[at], '>') << svg.substr(at > 20 ? at - 20 : 0, 40);
      ++at;
      continue;
    }
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
}

MemorySeries SeriesOf(const std::string& name, const std::vector<int64_t>& totals) {
  MemorySeries series{.name = name, .peak_text = "peak"};
  for (size_t i = 0; i < totals.size(); ++i) {
    CurvePoint point{.node = static_cast<NodeId>(i), .total = totals[i]};
    point.by_origin[static_cast<size_t>(Origin::kActivation)] = totals[i];
    series.curve.push_back(point);
    series.widths.push_back(1);
    series.phases.push_back(Phase::kForward);
  }
  return series;
}

TEST(MemorySvgTest, DrawsEachRunWhereItIs) {
  const std::string svg = MemorySvg({.title = "t", .series = {SeriesOf("a", {10, 40, 20, 0})}});
  ExpectWellFormed(svg);
  // Four runs of 198 pixels from x = 84 on. One line of legend under the title: the plot is from
  // 58 to 358 and holds 1.05 times the most, 42: 10 is 58 + 300·32/42 = 286.6, 40 is 72.3,
  // 20 is 215.1.
  EXPECT_THAT(svg, HasSubstr("d=\"M84 286.6H282V72.3H480V215.1H678V358.0H876\""));
  // The peak is marked at its first column.
  EXPECT_THAT(svg, HasSubstr("cx=\"283\" cy=\"72.3\""));
}

TEST(MemorySvgTest, KeepsAPeakThatIsNarrowerThanAColumn) {
  // 100,000 runs on 396 columns; one of them alone is high.
  std::vector<int64_t> totals(100'000, 1000);
  totals[54'321] = 4000;
  const std::string svg = MemorySvg({.title = "t", .series = {SeriesOf("a", totals)}});
  // Column 54,321 · 396 / 100,000 = 215; 58 + 300·(1 - 4000/4200) = 72.3.
  EXPECT_THAT(svg, HasSubstr("cx=\"515\" cy=\"72.3\""));
  EXPECT_LT(svg.size(), 20'000u);
}

TEST(MemorySvgTest, DrawsALongerPlanFartherOnTheSameAxes) {
  const std::string svg = MemorySvg(
      {.title = "t", .series = {SeriesOf("none", {40, 40}), SeriesOf("sqrt", {20, 20, 20, 20})}});
  // Two lines of legend: the plot begins at 76. 40 is 90.3, 20 is 233.1; two of four runs end in
  // the middle, 84 + 396.
  EXPECT_THAT(svg, HasSubstr("d=\"M84 90.3H480\""));
  EXPECT_THAT(svg, HasSubstr("d=\"M84 233.1H876\""));
}

TEST(MemorySvgTest, DrawsTheLimitWhereItIsNearAndTellsItWhereItIsFar) {
  MemoryChart chart{
      .title = "t", .series = {SeriesOf("a", {40})}, .limit = 80, .limit_text = "usable 80 B"};
  const std::string near = MemorySvg(chart);
  EXPECT_THAT(near, AllOf(HasSubstr("usable 80 B"), Not(HasSubstr("above what is drawn"))));
  chart.limit = 80'000'000;
  EXPECT_THAT(MemorySvg(chart), HasSubstr("usable 80 B; above what is drawn here"));
}

TEST(MemorySvgTest, IsDrawnOfNothingAndOfHostileNames) {
  ExpectWellFormed(MemorySvg({}));
  ExpectWellFormed(MemorySvg({.title = "t", .series = {SeriesOf("a", {})}}));
  ExpectWellFormed(MemorySvg({.title = "t", .series = {SeriesOf("a", {0, 0})}}));
  MemorySeries still = SeriesOf("still", {3, 5});
  still.widths = {0, 0};
  ExpectWellFormed(MemorySvg({.title = "t", .series = {still}}));
  const std::string svg = MemorySvg({.title = "<script>\"&'\x1b[2J\xff",
                                     .x_title = "a<b",
                                     .series = {SeriesOf("</text>", {INT64_MAX / 4, 1})}});
  ExpectWellFormed(svg);
  EXPECT_THAT(svg, AllOf(HasSubstr("&lt;script&gt;&quot;&amp;"), Not(HasSubstr("\x1b"))));
}

TEST(MemoryCurveTest, HasTheSimulatorsPeakAndItsOrigins) {
  const Graph graph =
      GptStep({.seq = 32, .context = 32, .vocab = 100, .layers = 4, .width = 64, .heads = 2})
          .Record();
  for (const Plan& plan : {PlanNone(graph), PlanSqrt(graph), PlanSegments(graph, 1, true)}) {
    const PlanPrice price = PriceValidPlan(graph, plan);
    const std::vector<CurvePoint> curve = MemoryCurve(graph, PlannedSteps(graph, plan));
    const CurvePoint* peak = &curve[0];
    size_t again = 0;
    for (const CurvePoint& p : curve) {
      if (p.total > peak->total) peak = &p;
      again += p.again && graph.nodes[p.node].op->kind != OpKind::kView;
      int64_t sum = 0;
      for (int64_t bytes : p.by_origin) sum += bytes;
      ASSERT_EQ(sum, p.total);
    }
    EXPECT_EQ(peak->total, price.peak_bytes) << plan.name;
    EXPECT_EQ(peak->node, price.peak_node) << plan.name;
    EXPECT_EQ(peak->by_origin, price.peak_by_origin) << plan.name;
    EXPECT_EQ(static_cast<int64_t>(again), price.extra_nodes) << plan.name;
  }
  const MemoryReport memory = AnalyzeMemory(graph);
  const std::vector<CurvePoint> curve = MemoryCurve(graph, RecordedSteps(graph));
  ASSERT_EQ(curve.size(), graph.nodes.size());
  for (size_t n = 0; n < curve.size(); ++n) EXPECT_EQ(curve[n].total, memory.curve[n]) << n;
}

}  // namespace
}  // namespace tally
