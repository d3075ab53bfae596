// Selective recomputation: plans that give values back by what made them, not by where they lie.
//
// What a plan here gives back goes after its last read in forward and is made again just before
// backward needs it, from what is kept. Between forward and backward lie the bytes that the word
// "saved" means in frameworks: BoundaryBytes. A record with several forward passes (micro-batches)
// is treated pass by pass.
#ifndef TALLY_ANALYSIS_PLAN_SELECTIVE_H_
#define TALLY_ANALYSIS_PLAN_SELECTIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/planner.h"
#include "tally/autograd/plan.h"

namespace tally {

// Kinds of ops that PlanSelective makes again:
//   matmul     all but contractions: only the results of matrix products, convolutions and
//   attention
//              are kept, of everything else nothing ("dots saveable" in JAX)
//   cheap      elementwise ops and those that go row by row: norms, softmax, activations, dropout
//   attention  the core of attention: from the product of queries and keys up to the last product
//              of two activations, that one kept (Megatron's selective recomputation). Attention
//              that is one fused op keeps nothing of that size; the note says so
// What one block reads of another stays (blocks as FindBlocks gives them), as with a checkpoint
// around each block.
const std::vector<std::string>& SelectiveKinds();

// Always a valid plan, PlanNone with a note where nothing of the kind is kept. kInvalidArgument,
// listing the kinds, for another word. n log n in the graph.
absl::StatusOr<Plan> PlanSelective(const Graph& graph, const std::string& kind);

// The least extra cost with at most `bytes` kept between forward and backward, in each forward pass
// by itself; the fewest bytes of equal cost, and nothing runs again where everything fits. A
// minimum cut per price on bytes, a knapsack and branch and bound between its corners
// (analysis/keep_cut.h). Parameters and what outlives the step do not count.
struct MinCutPlan {
  Plan plan;  // under "mincut:BYTES"; its note says when `bytes` cannot be met
  double extra_cost =
      0;                 // of the choice: each node once. A plan that has no room to make them once
                         // does not arise: everything that is made again is held until it was used
  double bound = 0;      // proven: no choice within `bytes` costs less
  bool optimal = false;  // extra_cost is that bound
};
MinCutPlan PlanMinCut(const Graph& graph, const NodeCosts& costs, int64_t bytes);

// The same at the bytes where the hull of (bytes, cost) has its corners, at most `most` of them:
// between two of them bytes are bought at one price.
std::vector<Plan> MinCutCorners(const Graph& graph, const NodeCosts& costs, int most);

// Bytes that a plan holds between forward and backward for what comes after: of storages that
// forward makes and a plan may give back, those that live before the first backward node and are
// read by it or later. The most of all forward passes. Plans of other planners can be asked too.
int64_t BoundaryBytes(const Graph& graph, const Plan& plan);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_SELECTIVE_H_
