// Pictures of plans: what is kept, dropped and run again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "dot_helpers.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/residuals.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

using ::testing::HasSubstr;

TEST(DotPlanTest, APlanShowsWhatItKeepsDropsAndRunsAgain) {
  const Graph graph = Trace("gpt2:layers=4,width=48,heads=4,vocab=64", true);
  const Plan plan = PlanSqrt(graph);
  const absl::StatusOr<PlanPrice> price = PricePlan(graph, plan);
  ASSERT_TRUE(price.ok());
  DotOptions options;
  options.plan = &plan;
  const std::string dot = Dot(graph, options);
  EXPECT_EQ(SumOf(dot, "flops_recompute"), price->recompute.total());
  EXPECT_THAT(dot, HasSubstr("plan=\"dropped\""));
  EXPECT_THAT(dot, HasSubstr("plan=\"retained\""));
  EXPECT_THAT(dot, HasSubstr("phase=\"recompute\""));
  // The graph's own attributes are those of the plan, not of the record, which runs nothing again.
  EXPECT_THAT(dot, HasSubstr("\n  plan=\"sqrt\";"));
  EXPECT_THAT(dot, HasSubstr(absl::StrCat("\n  peak_bytes=\"", price->peak_bytes, "\";")));
  EXPECT_THAT(dot, HasSubstr(absl::StrCat("\n  saved_bytes=\"", price->saved_bytes, "\";")));
  EXPECT_THAT(dot, HasSubstr(absl::StrCat("\n  flops_recompute=\"",
                                          ToDecimal(price->recompute.total()), "\";")));
  EXPECT_LT(price->saved_bytes, ListResiduals(graph).retained);
}

// The outermost table of a node's label: what its border is without colour.
std::string BorderOf(absl::string_view line) {
  const size_t begin = line.find("<TABLE"), end = line.find('>', begin);
  std::string border;
  for (absl::string_view word : absl::StrSplit(line.substr(begin, end - begin), ' ')) {
    if (!absl::StartsWith(word, "COLOR") && !absl::StartsWith(word, "BGCOLOR"))
      absl::StrAppend(&border, word, " ");
  }
  return border;
}

TEST(DotPlanTest, BordersTellRolesApartWithoutColour) {
  const Graph graph = Trace("gpt2:layers=4,width=16,heads=2,vocab=32,context=8", true);
  const Plan plan = PlanSqrt(graph);
  DotOptions options;
  options.fold = DotOptions::Fold::kNone;
  options.plan = &plan;
  std::map<std::string, std::set<std::string>> borders;  // of each role
  const std::string dot = Dot(graph, options);
  for (absl::string_view line : absl::StrSplit(dot, '\n')) {
    if (!absl::StrContains(line, "<TABLE") || !absl::StrContains(line, "phase=\"")) continue;
    std::string role;
    for (const char* mark : {"plan=\"transient\"", "plan=\"retained\"", "plan=\"dropped\"",
                             "phase=\"recompute\"", "phase=\"backward\""}) {
      if (role.empty() && absl::StrContains(line, mark)) role = mark;
    }
    if (absl::StrContains(role, "backward"))
      role = absl::StrContains(line, "flops_dw=\"0\"") ? "dX" : "dW";
    if (!role.empty()) borders[role].insert(BorderOf(line));
  }
  std::set<std::string> all;
  for (const auto& [role, looks] : borders) {
    EXPECT_EQ(looks.size(), 1u) << role;
    all.insert(looks.begin(), looks.end());
  }
  EXPECT_EQ(borders.size(), 6u);
  EXPECT_EQ(all.size(), 6u);
}

// Whether what node `n` makes first is read by backward or a second run before it is given back.
bool KeptForLater(const Graph& graph, const Plan& plan, NodeId n) {
  std::set<NodeId> ran;
  size_t at = 0;
  while (plan.steps[at].kind != PlanStep::kRun || plan.steps[at].id != n) {
    if (plan.steps[at].kind == PlanStep::kRun) ran.insert(plan.steps[at].id);
    ++at;
  }
  std::set<StorageId> live;
  for (ValueId v : graph.out(graph.nodes[n])) live.insert(graph.values[v].storage);
  for (ran.insert(n), ++at; at < plan.steps.size(); ++at) {
    const PlanStep& step = plan.steps[at];
    if (step.kind == PlanStep::kFree) {
      live.erase(step.id);
      continue;
    }
    const Node& node = graph.nodes[step.id];
    const bool later = !ran.insert(step.id).second || node.phase == Phase::kBackward;
    for (ValueId v : graph.in(node)) {
      if (later && live.count(graph.values[v].storage) > 0) return true;
    }
  }
  return false;
}

TEST(DotPlanTest, APlanMarksEachOpByWhatItDoesWithIt) {
  const Graph graph = Trace("gpt2:layers=5,width=16,heads=2,vocab=32,context=8", true);
  for (const Plan& plan : {PlanNone(graph), PlanSqrt(graph), PlanSegments(graph, 1, true)}) {
    std::vector<int> runs(graph.nodes.size(), 0);
    for (const PlanStep& step : plan.steps) runs[step.id] += step.kind == PlanStep::kRun;
    DotOptions options;
    options.fold = DotOptions::Fold::kNone;
    options.plan = &plan;
    const std::string dot = Dot(graph, options);
    int marked = 0;
    for (absl::string_view line : absl::StrSplit(dot, '\n')) {
      const size_t first = line.find("first_node=\""), mark = line.find(", plan=\"");
      if (first == absl::string_view::npos || mark == absl::string_view::npos) continue;
      const NodeId n = std::atoi(line.data() + first + 12);
      const std::string want = runs[n] > 1                    ? "dropped"
                               : KeptForLater(graph, plan, n) ? "retained"
                                                              : "transient";
      EXPECT_TRUE(absl::StartsWith(line.substr(mark + 8), want)) << plan.name << " node " << n;
      ++marked;
    }
    EXPECT_GT(marked, 60);
  }
}

TEST(DotPlanTest, APlanSaysHowOftenAndBeforeWhatItRunsAnOpAgain) {
  const Graph graph = Trace("mlp:8,16,4", true);
  std::vector<NodeId> list;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    // The first contraction also before each of the first two backward nodes.
    const bool backward = graph.nodes[n].phase == Phase::kBackward;
    if (backward && std::count(list.begin(), list.end(), 0) < 3) list.push_back(0);
    list.push_back(static_cast<NodeId>(n));
  }
  ASSERT_EQ(graph.nodes[0].phase, Phase::kForward);
  Plan plan = PlanFromRuns(graph, list);
  ASSERT_TRUE(ValidatePlan(graph, plan).ok()) << ValidatePlan(graph, plan);
  DotOptions options;
  options.fold = DotOptions::Fold::kNone;
  options.plan = &plan;
  const std::string dot = Dot(graph, options);
  EXPECT_THAT(dot, HasSubstr("run again 2 times"));
  EXPECT_THAT(dot, HasSubstr("first before n"));
  EXPECT_THAT(dot, HasSubstr("runs=\"3\""));
}

TEST(DotPlanTest, APlanOfAnotherGraphIsRefused) {
  Plan plan;
  plan.steps.push_back({PlanStep::kRun, 1'000'000});
  DotOptions options;
  options.plan = &plan;
  EXPECT_EQ(GraphDot(Trace("mlp:8,4", false), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tally
