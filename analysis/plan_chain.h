// PlanChain: dynamic programming over the chain of a record (analysis/chain.h), exact to the byte.
//
// A plan for stages s..t with the boundary before s stored and the gradient after t at hand is one
// of
//   store     run s..k-1, store the boundary before k; plan k..t; plan s..k-1 from the start again
//   keep      run s and keep its tape and its boundary; plan s+1..t; the gradients of s
//   drop      run s..k, keep the tape of k and its boundary but not the one before k; plan k+1..t;
//             plan s..k-1 again, whose first way up brings the dropped boundary back
// `kPersistent` knows the first two: what is stored stays until its gradients have used it. That is
// Rotor's class of schedules (Beaumont et al. 2019, arXiv 1911.13214). `kTrue` adds the third.
//
// Instead of memory slots, each pair of stages has the list of all (peak, cost) that no other plan
// beats. A peak is that of everything that lives: parameters, gradients so far, constants, scratch,
// as found by walking the record's nodes; PricePlan of the plan finds the same peak, or a lower one
// where a constant, or a boundary that backward reads from both sides, turns out to die earlier.
//
// Where stages are equal, `kTrue` is the optimum of all schedules as far as exhaustive search goes.
// Where they differ, schedules outside the class can be cheaper still, on about one random chain of
// four layers in thirty: a stored boundary is lent. With x_0 and x_1 stored, F2 F3 use x_1 up on
// their last way to the gradients of 3, and F1 makes it again for those of 2; here what is stored
// stays until the gradients that follow it are done. To know such plans, a list would be needed for
// every three stages (where the loan begins, how far down it pays, what is above) instead of two.
// PlanChain of `kTrue` asks the exact search (analysis/plan_exact.h) instead, which ends on short
// chains; on long ones analysis/plan_search.h looks for such plans.
//
// Time O(n^3 p) for n stages and p points of a list, O(n^2 p) where stages are equal; memory O(n^2)
// and the lists. A record with too many stages is planned over merged neighbours and says so.
#ifndef TALLY_ANALYSIS_PLAN_CHAIN_H_
#define TALLY_ANALYSIS_PLAN_CHAIN_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/planner.h"

namespace tally {

enum class ChainMoves : uint8_t { kPersistent, kTrue };

struct ChainPoint {
  int64_t peak_bytes = 0;
  double extra_cost = 0;
};

// Every plan of the class that no other of it beats, to be made one by one.
class ChainCurve {
 public:
  // Plans with a peak above `most_bytes` are left out, which is faster. The graph must outlive the
  // curve. kFailedPrecondition where FindChain says so.
  static absl::StatusOr<ChainCurve> Make(const Graph& graph, const NodeCosts& costs,
                                         ChainMoves moves,
                                         int64_t most_bytes = std::numeric_limits<int64_t>::max());
  ChainCurve(ChainCurve&&) noexcept;
  ChainCurve& operator=(ChainCurve&&) noexcept;
  ~ChainCurve();

  // By rising peak and falling cost.
  const std::vector<ChainPoint>& points() const;
  // The plan of points()[i]. Linear in the plan but for O(n p) a decision.
  Plan PlanAt(size_t i) const;

 private:
  struct Solver;
  explicit ChainCurve(std::unique_ptr<Solver> solver);
  friend std::vector<Plan> ChainFront(const Graph& graph, const NodeCosts& costs, ChainMoves moves,
                                      int most);
  friend absl::StatusOr<PlanAnswer> PlanChain(const Graph& graph, const NodeCosts& costs,
                                              int64_t budget, ChainMoves moves);

  std::unique_ptr<Solver> solver_;
};

// The cheapest plan of the class within `budget` bytes of peak; with `kTrue` on a chain so short
// that 20,000 states decide (about a dozen storages between forward and backward), the cheapest of
// all plans, or the proof that there is none. `optimal` only where that is proven: nothing runs
// again, or the exact search ended, or its bound is met. kInfeasible and kNotFound tell the
// working-set floor and its node. kFailedPrecondition where FindChain says so.
absl::StatusOr<PlanAnswer> PlanChain(const Graph& graph, const NodeCosts& costs, int64_t budget,
                                     ChainMoves moves);

// The plans of all points of the curve, by rising peak; no more than `most` of them, evenly taken,
// both ends among them. Chains of more than 256 stages are planned over merged neighbours, and
// lists of more than 4 `most` points are thinned on the way, so that of a long curve some points
// may be missed. Empty when the record is no chain.
std::vector<Plan> ChainFront(const Graph& graph, const NodeCosts& costs, ChainMoves moves,
                             int most = 64);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_CHAIN_H_
