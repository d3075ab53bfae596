// FindFloor: below which peak no plan of a record can go, and the node that forces it.
//
// While a node runs its operands, its outputs and its scratch live, and beside them what no plan
// can give back then: parameters, bound inputs until their last use, results, gradients that are
// accumulated, optimizer state. Beyond that, every value that a node reads was either kept from an
// earlier moment or made again, and both take room of their own:
//
//   Live(u, t)  u lives at some moment between the first runs of t-1 and t; it takes at least
//     kept:   max( Live(u, t-1), what lives while t-1 runs, with u )
//     again:  max( what stays then, with what the maker of u touches; Live(w, t) of all it reads )
//   whichever is less; node t takes max( what lives while it runs, Live(u, t) of all it reads ).
//
// Each value is followed alone, so the bound may be below the least peak of any plan (two values
// may not fit at once though each does); it is never above it. On a chain whose layers are equal it
// is the least peak.
#ifndef TALLY_ANALYSIS_FLOOR_H_
#define TALLY_ANALYSIS_FLOOR_H_

#include <cstdint>

#include "tally/analysis/plan_problem.h"
#include "tally/autograd/graph.h"

namespace tally {

struct PeakFloor {
  int64_t bytes = 0;      // PlanPrice::peak_bytes of no plan is less
  NodeId node = kNone;    // that forces it; kNone: what exists before the first node
  NodeId before = kNone;  // kNone: at its first run; else when it runs again, before this node
  int64_t operands = 0;   // of `bytes`: what the node reads and makes
  int64_t scratch = 0;    // its scratch
  int64_t beside = 0;     // all else that must live then
};

// Nodes x droppable storages where that product is at most 2^26; else values are not followed, and
// it is linear.
PeakFloor FindFloor(const PlanProblem& problem);
PeakFloor FindFloor(const Graph& graph);

// What must live while each node runs for the first time, itself included: by NodeId. Linear.
std::vector<int64_t> WorkingSets(const PlanProblem& problem);

}  // namespace tally

#endif  // TALLY_ANALYSIS_FLOOR_H_
