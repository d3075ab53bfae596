#include "tally/analysis/plan_front.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_chain.h"
#include "tally/analysis/plan_exact.h"
#include "tally/analysis/plan_levels.h"
#include "tally/analysis/plan_problem.h"
#include "tally/analysis/plan_search.h"
#include "tally/analysis/plan_selective.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/retention.h"

namespace tally {
namespace {

// Lengths of uniform plans that are tried: all up to 32, then by steps of an eighth.
std::vector<int> UniformLengths(int blocks) {
  std::vector<int> lengths;
  for (int k = 1; k <= blocks; k += std::max(1, k / 32 * 4)) lengths.push_back(k);
  return lengths;
}

class FrontMaker {
 public:
  FrontMaker(const Graph& graph, const NodeCosts& costs, const PlanFrontOptions& options)
      : g_(graph),
        costs_(costs),
        options_(options),
        problem_(graph),
        part_(PartOf(problem_.num_nodes())) {}

  PlanFront Make() {
    front_.unit = costs_.unit;
    front_.floor = FindFloor(problem_);
    Add(PlanNone(g_));
    if (problem_.NothingToDo().empty()) {
      AddBlockPlans();
      AddSelective();
      AddMinCut();
      AddExact();
      if (!front_.complete) AddAsked();
      if (!front_.complete) AddSearched();
    }
    FindFront();
    return std::move(front_);
  }

 private:
  // A plan that runs something again.
  void Add(Plan plan) {
    PlanPoint point;
    point.price = PriceValidPlan(g_, plan);
    if (!front_.points.empty() && point.price.extra_nodes == 0) return;
    point.extra_cost = ExtraCost(g_, plan, costs_);
    point.plan = std::move(plan);
    front_.points.push_back(std::move(point));
  }

  void AddBlockPlans() {
    Add(PlanSqrt(g_));
    for (int k : UniformLengths(static_cast<int>(FindBlocks(g_).size()))) Add(PlanUniform(g_, k));
    Add(PlanTriangular(g_));
    Add(PlanLog(g_));
    for (Plan& plan : ChainFront(g_, costs_, ChainMoves::kTrue, kChainPlans)) Add(std::move(plan));
  }

  void AddSelective() {
    for (const std::string& kind : SelectiveKinds()) Add(*PlanSelective(g_, kind));
  }

  void AddMinCut() {
    const int corners = std::max(kLeastTries, static_cast<int>(kCorners * part_));
    for (Plan& plan : MinCutCorners(g_, costs_, corners)) Add(std::move(plan));
  }

  // From no plan down to the floor, each budget just below the peak of the plan before, until the
  // states are used up.
  void AddExact() {
    int64_t states = options_.states;
    int64_t budget = front_.points[0].price.peak_bytes - 1;
    while (states > 0) {
      const ExactAnswer exact = SolveExactly(problem_, costs_, budget, states);
      states -= exact.states + 1;
      if (exact.kind == ExactAnswer::kStopped) {
        if (exact.cheapest > 0) front_.steps.push_back({budget, exact.cheapest});
        return;
      }
      if (exact.kind == ExactAnswer::kInfeasible) {
        front_.complete = true;
        if (exact.bound > front_.floor.bytes) {
          front_.floor = {};
          front_.floor.bytes = exact.bound;
          front_.floor.node = exact.node;
        }
        return;
      }
      Plan plan = PlanFromRuns(g_, exact.runs);
      plan.name = absl::StrCat("search:", budget);
      front_.steps.push_back({budget, exact.extra_cost});
      Add(std::move(plan));
      budget = front_.points.back().price.peak_bytes - 1;
    }
  }

  // What is found here seeds the search at the other budgets.
  void AddAsked() {
    std::vector<int64_t> asked = options_.asked;
    std::sort(asked.begin(), asked.end());
    asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
    for (int64_t budget : asked) {
      PlanAnswer answer = PlanSearch(g_, costs_, budget);
      if (answer.cheapest > 0) front_.steps.push_back({budget, answer.cheapest});
      if (answer.bound > front_.floor.bytes) {
        front_.floor = {};
        front_.floor.bytes = answer.bound;
        front_.floor.node = answer.node;
      }
      if (answer.kind == PlanAnswer::kPlan) Add(std::move(answer.plan));
    }
  }

  void AddSearched() {
    for (const KeepBound& bound : CostBounds(problem_, costs_, kMoments))
      front_.lines.push_back({bound.base, bound.per_byte});
    if (options_.budgets <= 0 || options_.work <= 0) return;
    RetentionSearch search(problem_, costs_);
    for (const PlanPoint& point : front_.points) search.AddSeed(point.plan);
    const int64_t most = front_.points[0].price.peak_bytes, least = front_.floor.bytes;
    const int budgets = std::max(std::min(kLeastTries, options_.budgets),
                                 static_cast<int>(options_.budgets * part_));
    const int64_t work = static_cast<int64_t>(static_cast<double>(options_.work) * part_) / budgets;
    for (int i = budgets; i-- > 0;) {
      const int64_t budget =
          least + static_cast<int64_t>(static_cast<double>(most - least) * i / budgets);
      const RunList found = search.Within(budget, work);
      if (!found.valid) continue;
      Plan plan = PlanFromRuns(g_, found.Nodes());
      plan.name = absl::StrCat("search:", budget);
      Add(std::move(plan));
    }
  }

  // What one try takes grows faster than the record; very long ones get fewer tries.
  static double PartOf(NodeId nodes) {
    constexpr double kLong = 8192;
    return std::min(1.0, kLong * kLong / (static_cast<double>(nodes) * nodes));
  }

  static constexpr int kLeastTries = 4;
  static constexpr int kCorners = 24, kMoments = 8, kChainPlans = 32;

  void FindFront() {
    std::vector<int32_t> order(front_.points.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    const auto& points = front_.points;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const int64_t x = points[a].price.peak_bytes, y = points[b].price.peak_bytes;
      return x != y ? x < y : points[a].extra_cost < points[b].extra_cost;
    });
    for (int32_t i : order) {
      if (front_.front.empty() || points[i].extra_cost < points[front_.front.back()].extra_cost)
        front_.front.push_back(i);
    }
  }

  const Graph& g_;
  const NodeCosts& costs_;
  const PlanFrontOptions& options_;
  const PlanProblem problem_;
  const double part_;  // of the tries of a short record
  PlanFront front_;
};

}  // namespace

double PlanFront::CheapestWithin(int64_t budget) const {
  double least = 0;
  for (const CostStep& step : steps) {
    if (budget <= step.budget) least = std::max(least, step.cost);
  }
  for (const CostSlope& line : lines)
    least = std::max(least, line.base - line.per_byte * static_cast<double>(budget));
  return least;
}

PlanFront MakePlanFront(const Graph& graph, const NodeCosts& costs,
                        const PlanFrontOptions& options) {
  return FrontMaker(graph, costs, options).Make();
}

PlanAnswer Optimal(const PlanFront& front, int64_t budget) {
  PlanAnswer answer;
  answer.bound = front.floor.bytes;
  answer.node = front.floor.node;
  answer.best = front.points[front.front[0]].price.peak_bytes;
  const PlanPoint* best = nullptr;
  for (int32_t i : front.front) {
    if (front.points[i].price.peak_bytes <= budget) best = &front.points[i];
  }
  if (best == nullptr) {
    answer.kind = budget < answer.bound ? PlanAnswer::kInfeasible : PlanAnswer::kNotFound;
    return answer;
  }
  answer.plan = best->plan;
  answer.price = best->price;
  answer.cheapest = std::min(front.CheapestWithin(budget), best->extra_cost);
  answer.optimal = best->extra_cost <= answer.cheapest * (1 + 1e-9);
  return answer;
}

namespace {

// Joins what one node makes and is kept over a common stretch, up to where the first of it is read.
std::vector<KeptWorth> JoinByMaker(const PlanProblem& problem, std::vector<KeptWorth> list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const KeptWorth& a, const KeptWorth& b) { return a.until < b.until; });
  std::vector<KeptWorth> joined;
  for (const KeptWorth& kept : list) {
    KeptWorth* home = nullptr;
    for (KeptWorth& other : joined) {
      const bool apart =
          other.storage == kept.storage || kept.from >= other.until ||
          std::find(other.with.begin(), other.with.end(), kept.storage) != other.with.end();
      if (!apart && problem.maker(other.storage) == problem.maker(kept.storage)) home = &other;
    }
    if (home == nullptr) {
      joined.push_back(kept);
      continue;
    }
    home->with.push_back(kept.storage);
    home->from = std::max(home->from, kept.from);
    home->bytes += kept.bytes;
  }
  return joined;
}

}  // namespace

std::vector<KeptWorth> WorthOf(const Graph& graph, const Plan& plan, const NodeCosts& costs) {
  const PlanProblem problem(graph);
  Retention retention(problem, costs);
  const std::vector<Gap> gaps = GapsOf(problem, costs, plan);
  retention.Set(gaps);
  const RunList now = retention.Make();
  std::vector<KeptWorth> worth;
  if (!now.valid) return worth;
  // From one touch of a life to the next across the end of a forward pass.
  std::vector<NodeId> last(problem.num_storages(), kNone);
  for (const RunLife& run : now.runs) {
    for (StorageId s : problem.touches(run.node)) {
      if (!problem.droppable(s)) continue;
      const bool made = run.node == problem.maker(s);
      const bool later = run.again || graph.nodes[run.node].phase != Phase::kForward;
      if (!made && later && last[s] != kNone && last[s] < run.before)
        worth.push_back({s, {}, last[s], run.before, problem.bytes(s)});
      last[s] = later ? kNone : run.before;
    }
  }
  worth = JoinByMaker(problem, std::move(worth));
  for (KeptWorth& kept : worth) {
    retention.Set(gaps);
    retention.Add({kept.storage, kept.from, kept.until});
    for (StorageId s : kept.with) retention.Add({s, kept.from, kept.until});
    const RunList without = retention.Make();
    if (!without.valid) {
      kept.bytes = 0;
      continue;
    }
    kept.extra_cost = without.extra_cost - now.extra_cost;
    kept.peak_change = without.peak - now.peak;
  }
  std::erase_if(worth, [](const KeptWorth& kept) { return kept.bytes == 0; });
  std::stable_sort(worth.begin(), worth.end(), [](const KeptWorth& a, const KeptWorth& b) {
    return a.per_byte() > b.per_byte();
  });
  return worth;
}

}  // namespace tally
