// MakePlanFront: the plans of all planners for one record, and which of them are worth having.
//
// The front are the plans that no other beats in both peak bytes and extra cost. A budget is
// answered from it, so a larger budget never gets a dearer plan; and every point is a plan that can
// be run. Beside it stand lower bounds that no plan of any planner can beat.
#ifndef TALLY_ANALYSIS_PLAN_FRONT_H_
#define TALLY_ANALYSIS_PLAN_FRONT_H_

#include <cstdint>
#include <vector>

#include "tally/analysis/floor.h"
#include "tally/analysis/planner.h"
#include "tally/autograd/plan.h"

namespace tally {

struct PlanPoint {
  Plan plan;
  PlanPrice price;
  double extra_cost = 0;  // in the unit of the costs
};

// Proven: a plan whose peak is at most `budget` costs at least `cost` more than none.
struct CostStep {
  int64_t budget = 0;
  double cost = 0;
};
// Proven: a plan whose peak is at most B costs at least base - per_byte x B more than none.
struct CostSlope {
  double base = 0, per_byte = 0;
};

// A record of n > 8,192 nodes gets (8,192 / n)^2 of the budgets, the work and the corners of mincut
// (but four of each at least), and its chain is planned over 256 stages: the whole stays bounded.
struct PlanFrontOptions {
  int budgets = 24;            // between the floor and no plan, that the search is asked about
  int64_t work = 250'000'000;  // runs that the search may look at, over all budgets; 0: no search
  int64_t states = 200'000;    // of the exact search, over all budgets; 0: no exact search
  // Budgets that will be asked for, in any order: of each the front has what PlanSearch answers, so
  // that Optimal there is never dearer, and the bounds that it has proven.
  std::vector<int64_t> asked = {};
};

struct PlanFront {
  NodeCosts::Unit unit = NodeCosts::kFlops;
  std::vector<PlanPoint> points;  // every plan that was made, "none" first, in order of planners
  std::vector<int32_t> front;     // of `points`: peaks ascending, extra costs descending
  PeakFloor floor;
  std::vector<CostStep> steps;
  std::vector<CostSlope> lines;
  bool complete = false;  // the front is proven: no plan of any planner is outside it

  const PlanPoint& none() const { return points[0]; }
  // Proven lower bound of the extra cost within `budget`, 0 where nothing is known.
  double CheapestWithin(int64_t budget) const;
};

// Plans of: none, sqrt, uniform:K, triangular, log, the chain's dynamic programming,
// selective:KIND, mincut at the corners of its hull, search, also at the asked budgets.
// Deterministic: bounded by work, not by
// time. A record without backward, or one that is checkpointed already, has the one point "none".
PlanFront MakePlanFront(const Graph& graph, const NodeCosts& costs,
                        const PlanFrontOptions& options = {});

// The cheapest plan of the front within a budget of peak bytes, or that there is none (proven by
// the floor), or that none was found. Monotone in the budget.
PlanAnswer Optimal(const PlanFront& front, int64_t budget);

// What keeping a storage buys: a stretch of its life, from one use to the next, in which a plan
// could do without it.
struct KeptWorth {
  StorageId storage = kNone;
  // Others that the same rerun brings back in that stretch (the mean and rstd beside a layer norm's
  // result): they are given up together, and counted in the figures below.
  std::vector<StorageId> with;
  NodeId from = kNone,
         until = kNone;  // it is kept after the first run of one for that of the other
  int64_t bytes = 0;
  double extra_cost = 0;    // that the plan has without it; what it takes to make it again
  int64_t peak_change = 0;  // of the plan's peak without it; 0 or more when it would not help
  double per_byte() const { return bytes == 0 ? 0 : extra_cost / static_cast<double>(bytes); }
};

// Of every storage that `plan` keeps between forward and backward and could give back, by extra
// cost per byte, the dearest first; what one node makes is one entry, so that no rerun is counted
// twice. Each entry is left out of the plan by itself. The plan is taken by its gaps
// (analysis/retention.h). Kept storages x runs.
std::vector<KeptWorth> WorthOf(const Graph& graph, const Plan& plan, const NodeCosts& costs);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_FRONT_H_
