#include "tally/analysis/plan_chain.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/chain.h"
#include "tally/analysis/chain_model.h"
#include "tally/analysis/chain_solver.h"
#include "tally/analysis/floor.h"
#include "tally/analysis/plan_exact.h"
#include "tally/analysis/plan_problem.h"
#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr size_t kShortList = 64;
constexpr int64_t kExactStates = 20'000;
constexpr int kMostStages = 1024, kMostFrontStages = 256;

const char* NameOf(ChainMoves moves) {
  return moves == ChainMoves::kPersistent ? "persistent" : "chain";
}

}  // namespace

struct ChainCurve::Solver {
  const Graph* graph = nullptr;
  LayerChain chain;
  ChainModel model;
  ChainMoves moves = ChainMoves::kTrue;
  std::vector<PassSolver> passes;
  std::vector<ChainPoint> points;
  bool thinned = false;

  static absl::StatusOr<std::unique_ptr<Solver>> Make(const Graph& graph, const NodeCosts& costs,
                                                      ChainMoves moves,
                                                      int most_stages = kMostStages) {
    auto solver = std::make_unique<Solver>();
    solver->graph = &graph;
    solver->moves = moves;
    TALLY_ASSIGN_OR_RETURN(solver->chain, FindChain(graph, most_stages));
    solver->model = ModelChain(graph, solver->chain, costs);
    return solver;
  }

  void Solve(const TradeLimits& limits) {
    passes.clear();
    points.clear();
    thinned = false;
    TradeList all;
    if (model.rest <= limits.bytes) all = {{model.rest}, {0}};
    for (const PassModel& pass : model.passes) {
      passes.emplace_back(pass, moves, limits);
      passes.back().Solve();
      thinned |= passes.back().thinned();
      // The passes follow each other: peaks are the greater, costs add up.
      TradeList both;
      AddTrades({&all, 0, &passes.back().plans()}, limits, &both);
      all = std::move(both);
    }
    for (size_t i = 0; i < all.peak.size(); ++i) points.push_back({all.peak[i], all.cost[i]});
  }
};

ChainCurve::ChainCurve(std::unique_ptr<Solver> solver) : solver_(std::move(solver)) {}
ChainCurve::ChainCurve(ChainCurve&&) noexcept = default;
ChainCurve& ChainCurve::operator=(ChainCurve&&) noexcept = default;
ChainCurve::~ChainCurve() = default;

absl::StatusOr<ChainCurve> ChainCurve::Make(const Graph& graph, const NodeCosts& costs,
                                            ChainMoves moves, int64_t most_bytes) {
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Solver> solver, Solver::Make(graph, costs, moves));
  solver->Solve({.bytes = most_bytes});
  return ChainCurve(std::move(solver));
}

const std::vector<ChainPoint>& ChainCurve::points() const { return solver_->points; }

Plan ChainCurve::PlanAt(size_t i) const {
  const Solver& s = *solver_;
  TALLY_CHECK(i < s.points.size()) << "no point " << i << " on the curve";
  ChainRuns runs(*s.graph, s.chain, s.model);
  for (size_t p = 0; p < s.passes.size(); ++p) {
    runs.EnterPass(p);
    s.passes[p].Emit(s.points[i].peak_bytes, &runs);
  }
  Plan plan = PlanFromRuns(*s.graph, runs.Finish());
  plan.name = absl::StrCat(NameOf(s.moves), ":", s.points[i].peak_bytes);
  return plan;
}

absl::StatusOr<PlanAnswer> PlanChain(const Graph& graph, const NodeCosts& costs, int64_t budget,
                                     ChainMoves moves) {
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<ChainCurve::Solver> solver,
                         ChainCurve::Solver::Make(graph, costs, moves));
  // With short lists a plan is found soon that may not be the cheapest: what costs more need not be
  // looked at. The least peak is the same, as lists keep their ends.
  solver->Solve({.bytes = budget, .points = kShortList});
  if (!solver->points.empty() && solver->thinned) {
    const double enough = solver->points.back().extra_cost * (1 + 1e-9);
    solver->Solve({.bytes = budget, .cost = enough});
  }
  PlanAnswer answer;
  const PlanProblem problem(graph);
  const PeakFloor floor = FindFloor(problem);
  answer.bound = floor.bytes;
  answer.node = floor.node;
  const auto give = [&](Plan plan) {
    answer.kind = PlanAnswer::kPlan;
    answer.plan = std::move(plan);
    answer.plan.name = absl::StrCat(NameOf(moves), ":", budget);
    answer.price = PriceValidPlan(graph, answer.plan);
    TALLY_CHECK(answer.price.peak_bytes <= budget)
        << "a plan for " << budget << " bytes takes " << answer.price.peak_bytes;
    answer.best = answer.price.peak_bytes;
  };
  double cost = std::numeric_limits<double>::infinity();
  if (!solver->points.empty()) {
    const ChainCurve curve(std::move(solver));
    give(curve.PlanAt(curve.points().size() - 1));
    cost = curve.points().back().extra_cost;
    answer.optimal = cost == 0;
  } else {
    solver->Solve({.points = 1});
    const ChainCurve least(std::move(solver));
    answer.best = PriceValidPlan(graph, least.PlanAt(0)).peak_bytes;
    answer.kind = budget < answer.bound ? PlanAnswer::kInfeasible : PlanAnswer::kNotFound;
  }
  if (moves == ChainMoves::kTrue && !answer.optimal && answer.kind != PlanAnswer::kInfeasible) {
    const ExactAnswer exact = SolveExactly(problem, costs, budget, kExactStates);
    switch (exact.kind) {
      case ExactAnswer::kSolved:
        if (exact.extra_cost < cost * (1 - 1e-12)) give(PlanFromRuns(graph, exact.runs));
        answer.optimal = true;
        answer.cheapest = exact.extra_cost;
        break;
      case ExactAnswer::kInfeasible:
        answer.kind = PlanAnswer::kInfeasible;
        answer.bound = exact.bound;
        answer.node = exact.node;
        break;
      case ExactAnswer::kStopped:
        answer.cheapest = std::min(exact.cheapest, cost);
        answer.optimal = cost <= answer.cheapest * (1 + 1e-9);
        break;
    }
  }
  return answer;
}

std::vector<Plan> ChainFront(const Graph& graph, const NodeCosts& costs, ChainMoves moves,
                             int most) {
  TALLY_CHECK(most >= 2) << "a front of " << most << " plans";
  absl::StatusOr<std::unique_ptr<ChainCurve::Solver>> solver =
      ChainCurve::Solver::Make(graph, costs, moves, kMostFrontStages);
  std::vector<Plan> plans;
  if (!solver.ok()) return plans;
  (*solver)->Solve({.points = 4 * static_cast<size_t>(most)});
  const ChainCurve curve(*std::move(solver));
  const size_t points = curve.points().size();
  const size_t taken = std::min(points, static_cast<size_t>(most));
  for (size_t i = 0; i < taken; ++i) {
    plans.push_back(curve.PlanAt(taken == 1 ? 0 : i * (points - 1) / (taken - 1)));
  }
  return plans;
}

}  // namespace tally
