// PlanSqrt: activation checkpointing over the layer chain in segments of ceil(sqrt(L)) blocks.
//
// L = the recorded blocks: the scopes that stand side by side nearest the root and differ only in a
// number ("h.0" .. "h.11", or "0" .. "11" in "layers"). Forward keeps what the next segment reads;
// what backward needs from inside a segment is made again from there just before it is needed, only
// that much (early stop). The last segment is not recomputed, its backward comes at once. Chen et
// al. 2016 (arXiv 1604.06174), algorithm 1.
#ifndef TALLY_ANALYSIS_PLAN_SQRT_H_
#define TALLY_ANALYSIS_PLAN_SQRT_H_

#include <vector>

#include "tally/autograd/plan.h"

namespace tally {

// Scopes of the layer chain in order of their first node; empty when there are fewer than two.
std::vector<ScopeId> FindBlocks(const Graph& graph);

// Always a valid plan. Where there is nothing to do (no blocks, no backward, a record that is
// checkpointed already) it is PlanNone under the name "sqrt" with a note. Whether it pays is a
// matter of its price: compare PricePlan's peak with that of PlanNone. n log n in the graph.
Plan PlanSqrt(const Graph& graph);

// The same with segments of `length` >= 1 blocks, and on request with the last segment recomputed
// too.
Plan PlanSegments(const Graph& graph, int length, bool recompute_last);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_SQRT_H_
