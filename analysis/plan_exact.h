// SolveExactly: the cheapest plan within a budget, proven, for small records.
//
// Best first (A*) over states (next node to run for the first time, what lives then). A step runs
// the next node, runs a forward node again, or, where the budget stops one of these, gives one
// storage back. What is left to pay is bounded from below by the cost of all nodes that have to run
// again for what the rest of the record reads, each once, which no step can lower by more than it
// costs; so the first complete plan is the cheapest. When every reachable state is seen and none is
// complete, no plan exists, and any plan has to take one of the steps that the budget stopped: the
// least of these is a proven floor.
#ifndef TALLY_ANALYSIS_PLAN_EXACT_H_
#define TALLY_ANALYSIS_PLAN_EXACT_H_

#include <cstdint>
#include <vector>

#include "tally/analysis/plan_problem.h"
#include "tally/analysis/planner.h"

namespace tally {

struct ExactAnswer {
  enum Kind : uint8_t {
    kSolved,
    kInfeasible,
    kStopped,  // `max_states` were not enough, or there are more than 128 storages to choose from
  };
  Kind kind = kStopped;
  std::vector<NodeId> runs;  // kSolved
  double extra_cost = 0;     // kSolved
  double cheapest = 0;       // kStopped: no plan within the budget costs less
  int64_t bound = 0;         // kInfeasible: no plan has a lower peak
  NodeId node = kNone;       // kInfeasible: the run that needs it
  int64_t states = 0;        // that were met
};

// Exponential in the storages that forward makes; a state takes at most (forward nodes + storages)
// steps. `max_states`: that are met, each about 100 bytes.
ExactAnswer SolveExactly(const PlanProblem& problem, const NodeCosts& costs, int64_t budget,
                         int64_t max_states);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_EXACT_H_
