// Segments of a chain, each recomputed at most once. For planners; not for users.
#ifndef TALLY_ANALYSIS_CHAIN_SEGMENTS_H_
#define TALLY_ANALYSIS_CHAIN_SEGMENTS_H_

#include <vector>

#include "tally/analysis/chain.h"
#include "tally/analysis/chain_model.h"
#include "tally/autograd/plan.h"

namespace tally {

// Forward keeps the boundaries before segments, and the last segment; each other one is made again
// from its boundary just before its backward, without the boundary after it. `cuts`: per pass the
// first stage of each segment, ascending from 0.
Plan PlanSegmentsAt(const Graph& graph, const LayerChain& chain, const ChainModel& model,
                    const std::vector<std::vector<int>>& cuts);

// The cuts of least peak. For a bound on the peak the segments that end at a stage are chosen so
// that the least is stored before it; the bound is halved down. O(n^2 log bytes).
std::vector<int> LeastPeakSegments(const PassModel& pass);

}  // namespace tally

#endif  // TALLY_ANALYSIS_CHAIN_SEGMENTS_H_
