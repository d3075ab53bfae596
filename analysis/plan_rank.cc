#include "tally/analysis/plan_rank.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tally {
namespace {

bool Splits(const ZeroOptions& ranks) { return ranks.ranks > 1 && ranks.stage > 0; }

// Parameters and optimizer state that a rank holds before anything runs.
int64_t HeldFromTheStart(const Graph& graph, const ZeroOptions& ranks, const ZeroReport& rank) {
  int64_t bytes = 0;
  for (const FlatGroup& group : rank.groups) {
    if (group.split && group.part != BudgetPart::kGradients) bytes += group.rank_bytes();
  }
  for (const StorageRecord& storage : graph.storages) {
    const bool whole = (storage.origin == Origin::kParameter && ranks.stage < 3) ||
                       (storage.origin == Origin::kOptimizerState && !Splits(ranks));
    if (whole && storage.resident) bytes += storage.bytes;
  }
  return bytes;
}

}  // namespace

int64_t SplitBytes(const Graph& graph, const ZeroOptions& ranks) {
  if (!Splits(ranks)) return 0;
  const std::vector<GradientRole> roles = GradientRoles(graph);
  int64_t bytes = 0;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const Origin origin = graph.storages[s].origin;
    const bool split = origin == Origin::kOptimizerState ||
                       (ranks.stage >= 2 && roles[s] != GradientRole::kNoGradient) ||
                       (ranks.stage >= 3 && origin == Origin::kParameter);
    if (split) bytes += graph.storages[s].bytes;
  }
  return bytes;
}

int64_t BudgetOnOneDevice(const Graph& graph, const ZeroOptions& ranks, int64_t budget) {
  if (!Splits(ranks)) return budget;
  return budget + StatesOf(graph).total() - ApplyZero(graph, ranks).states.total();
}

PlanAnswer OptimalOnRank(const Graph& graph, const PlanFront& front, const ZeroOptions& ranks,
                         int64_t budget) {
  if (!Splits(ranks)) return Optimal(front, budget);
  const std::vector<PlanPoint>& points = front.points;
  std::vector<int32_t> order(points.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return points[a].extra_cost < points[b].extra_cost;
  });
  PlanAnswer answer;
  const int64_t spared = SplitBytes(graph, ranks);
  const int64_t held = HeldFromTheStart(graph, ranks, ApplyZero(graph, points[0].plan, ranks));
  answer.bound = std::max(front.floor.bytes - spared, held);
  answer.node = held >= front.floor.bytes - spared ? kNone : front.floor.node;
  answer.kind = budget < answer.bound ? PlanAnswer::kInfeasible : PlanAnswer::kNotFound;
  bool first = true;
  for (int32_t i : order) {
    const int64_t peak = ApplyZero(graph, points[i].plan, ranks).peak_bytes;
    answer.best = first ? peak : std::min(answer.best, peak);
    first = false;
    if (peak > budget) continue;
    answer.kind = PlanAnswer::kPlan;
    answer.plan = points[i].plan;
    answer.price = points[i].price;
    answer.cheapest = std::min(front.CheapestWithin(budget + spared), points[i].extra_cost);
    answer.optimal = points[i].extra_cost <= answer.cheapest * (1 + 1e-9);
    break;
  }
  return answer;
}

}  // namespace tally
