// Plans for one of several ranks that split model states (analysis/zero.h).
//
// A planner holds a plan to the peak of one device, which has all states. A rank has its parts of
// them and for a while what it gathers and has not reduced yet, so what a budget leaves for the
// rest depends on the plan. Here each plan of a front is walked as a rank runs it.
#ifndef TALLY_ANALYSIS_PLAN_RANK_H_
#define TALLY_ANALYSIS_PLAN_RANK_H_

#include <cstdint>

#include "tally/analysis/plan_front.h"
#include "tally/analysis/zero.h"

namespace tally {

// Bytes of the storages that `ranks` splits, whole: no plan's peak on one device is more than this
// above that of a rank.
int64_t SplitBytes(const Graph& graph, const ZeroOptions& ranks);

// The peak on one device of a plan that gives a rank a peak of about `budget`: what the rank does
// not hold of the states comes on top. For a search to aim at; nothing is proven by it.
int64_t BudgetOnOneDevice(const Graph& graph, const ZeroOptions& ranks, int64_t budget);

// The cheapest plan of the front whose peak on a rank is at most `budget`. Bytes of the answer
// (bound, best) are of a rank, its price is of one device as all prices are. Bounds are the
// front's, moved by SplitBytes: proven, and looser than those of one device. The node is kNone
// where the states alone are the bound. Monotone in the budget. Points x n log n at most.
PlanAnswer OptimalOnRank(const Graph& graph, const PlanFront& front, const ZeroOptions& ranks,
                         int64_t budget);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_RANK_H_
