// Planners for chains by rule: no budget, no search.
//
// All of them return a valid plan under their own name; where there is nothing to do it is PlanNone
// with a note (analysis/planner.h).
#ifndef TALLY_ANALYSIS_PLAN_LEVELS_H_
#define TALLY_ANALYSIS_PLAN_LEVELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tally/analysis/planner.h"

namespace tally {

// Segments of `length` >= 1 blocks, the remainder last and not recomputed. "uniform:K".
Plan PlanUniform(const Graph& graph, int length);

// The least peak that segments can have when each is recomputed at most once: since the boundaries
// stored so far count beside a segment, later segments are shorter. For L unit layers without a
// tape the least M with M(M-1)/2 >= L. O(n^2 log bytes) for n stages.
Plan PlanTriangular(const Graph& graph);

// Griewank and Walther's binomial schedule (TOMS algorithm 799) over the stages with `snapshots` >=
// 1 stored states, the first one included. Minimal in reruns for that many when stages are equal;
// it looks at no bytes. Linear in the plan.
Plan PlanRevolve(const Graph& graph, int snapshots);

// The binomial schedule with as many states as recursive halving holds, floor(log2 L): log L memory
// for fewer reruns than halving's (L/2) log2 L.
Plan PlanLog(const Graph& graph);

// Forward steps that are run only to reach a state again, for `steps` with `snapshots` states:
// t(l,c) = r l - beta(c+1, r-1), beta(c,r) = (c+r)!/(c! r!), beta(c,r-1) < l <= beta(c,r).
int64_t BinomialAdvances(int64_t steps, int64_t snapshots);

// Why sqrt(L) is the wrong length: sqrt against the best length on the same record.
struct SqrtVerdict {
  int64_t blocks = 0;
  int64_t sqrt_length = 0, best_length = 0;
  int64_t sqrt_peak = 0, best_peak = 0;        // bytes, of everything
  int64_t boundary_bytes = 0, tape_bytes = 0;  // of the middle block
  bool loses() const { return best_peak < sqrt_peak; }
};
// Prices every uniform length up to L; O(L) plans, so O(L n). kFailedPrecondition without blocks.
absl::StatusOr<SqrtVerdict> JudgeSqrt(const Graph& graph);
}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_LEVELS_H_
