#include "tally/analysis/plan_search.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/floor.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/plan_exact.h"
#include "tally/analysis/plan_selective.h"
#include "tally/analysis/plan_sqrt.h"

namespace tally {

std::vector<KeepBound> CostBounds(const PlanProblem& problem, const NodeCosts& costs, int moments) {
  const Graph& g = problem.graph();
  std::vector<NodeId> backward, at;
  Phase before = Phase::kBackward;
  for (NodeId n = 0; n < problem.num_nodes(); ++n) {
    const Phase phase = g.nodes[n].phase;
    if (phase == Phase::kBackward) {
      if (before == Phase::kForward) at.push_back(n);
      backward.push_back(n);
    }
    before = phase;
  }
  for (int i = 0; i < moments && !backward.empty(); ++i)
    at.push_back(backward[backward.size() * static_cast<size_t>(i) / static_cast<size_t>(moments)]);
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  const std::vector<int64_t> working_sets = WorkingSets(problem);
  std::vector<KeepBound> bounds;
  for (NodeId n : at) {
    std::vector<KeepBound> here;
    KeepCut(problem, costs, n).Hull(/*most=*/16, &here);
    for (KeepBound& bound : here) {
      bound.base += bound.per_byte * static_cast<double>(working_sets[n]);
      bounds.push_back(bound);
    }
  }
  return bounds;
}

PlanAnswer PlanSearch(const Graph& graph, const NodeCosts& costs, int64_t budget, int64_t work) {
  PlanAnswer answer;
  const PlanProblem problem(graph);
  const PeakFloor floor = FindFloor(problem);
  answer.bound = floor.bytes;
  answer.node = floor.node;
  const auto give = [&](Plan plan, std::string note) {
    plan.name = absl::StrCat("search:", budget);
    plan.note = std::move(note);
    answer.price = PriceValidPlan(graph, plan);
    answer.best = answer.price.peak_bytes;
    answer.plan = std::move(plan);
    answer.kind = PlanAnswer::kPlan;
  };
  const Plan none = PlanNone(graph);
  const int64_t none_peak = PriceValidPlan(graph, none).peak_bytes;
  answer.best = none_peak;
  if (none_peak <= budget) {
    give(none, "");
    answer.optimal = true;
    return answer;
  }
  if (budget < floor.bytes || !problem.NothingToDo().empty()) {
    // Without backward, and in a checkpointed record, another order of runs is not looked for.
    answer.kind = budget < floor.bytes ? PlanAnswer::kInfeasible : PlanAnswer::kNotFound;
    return answer;
  }
  RetentionSearch search(problem, costs);
  search.AddSeed(PlanSqrt(graph));
  const int blocks = static_cast<int>(FindBlocks(graph).size());
  for (int k = 1; k <= blocks; k += std::max(1, k / 4))
    search.AddSeed(PlanSegments(graph, k, /*recompute_last=*/false));
  for (const Plan& plan : ChainFront(graph, costs, ChainMoves::kTrue, /*most=*/32))
    search.AddSeed(plan);
  for (const std::string& kind : SelectiveKinds()) search.AddSeed(*PlanSelective(graph, kind));
  RunList found = search.Within(budget, work);
  answer.best = std::min(answer.best, search.least_peak());
  for (const KeepBound& bound : CostBounds(problem, costs, /*moments=*/6)) {
    answer.cheapest =
        std::max(answer.cheapest, bound.base - bound.per_byte * static_cast<double>(budget));
  }
  if (!found.valid || found.extra_cost > answer.cheapest * (1 + 1e-9)) {
    const ExactAnswer exact = SolveExactly(problem, costs, budget, /*max_states=*/200'000);
    if (exact.kind == ExactAnswer::kSolved) {
      answer.cheapest = exact.extra_cost;
      if (!found.valid || exact.extra_cost < found.extra_cost)
        found = PriceRuns(problem, costs, exact.runs);
    } else if (exact.kind == ExactAnswer::kInfeasible) {
      answer.kind = PlanAnswer::kInfeasible;
      answer.bound = std::max(answer.bound, exact.bound);
      if (exact.bound > floor.bytes) answer.node = exact.node;
      return answer;
    } else {
      answer.cheapest = std::max(answer.cheapest, exact.cheapest);
    }
  }
  if (!found.valid) {
    answer.kind = PlanAnswer::kNotFound;
    return answer;
  }
  give(PlanFromRuns(graph, found.Nodes()), "");
  answer.cheapest = std::min(answer.cheapest, found.extra_cost);
  answer.optimal = found.extra_cost <= answer.cheapest * (1 + 1e-9);
  return answer;
}

}  // namespace tally
