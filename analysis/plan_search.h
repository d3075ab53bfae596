// PlanSearch: plans for any record within a budget of peak bytes, by search over what is retained.
//
// A plan is a set of gaps (analysis/retention.h). From each seed, a plan of another planner or
// none,
//   repair   while the peak is above the budget: of all that lives at the peak and is not used
//   then,
//            what is cheapest to do without until its next use goes; a knapsack decides over all of
//            it at once, each weighed by its bytes against what it takes to make it again
//   polish   gaps that are not needed are closed, the dearest first, or end earlier where the
//            storage is made again anyway
//   vary     one dear gap is closed and what the peak then asks for is repaired elsewhere; kept
//   when
//            the plan got cheaper
// Small records are then solved exactly (analysis/plan_exact.h), and every answer comes with a
// proven lower bound: of the peak (analysis/floor.h) and of the extra cost (analysis/keep_cut.h).
#ifndef TALLY_ANALYSIS_PLAN_SEARCH_H_
#define TALLY_ANALYSIS_PLAN_SEARCH_H_

#include <cstdint>
#include <vector>

#include "tally/analysis/keep_cut.h"
#include "tally/analysis/plan_problem.h"
#include "tally/analysis/planner.h"
#include "tally/analysis/retention.h"

namespace tally {

// Searches one record for several budgets; what one has found seeds the next. Deterministic.
class RetentionSearch {
 public:
  // All must outlive this.
  RetentionSearch(const PlanProblem& problem, const NodeCosts& costs);

  // A plan to start from.
  void AddSeed(const Plan& plan);

  // The cheapest runs found with a peak of at most `budget`, looking at about `work` runs; empty
  // when none was found.
  RunList Within(int64_t budget, int64_t work);

  int64_t least_peak() const { return least_peak_; }  // of any plan that was looked at
  int64_t spent() const { return spent_; }            // runs looked at so far

 private:
  struct Candidate {
    std::vector<Gap> gaps;
    int64_t peak = 0;
    double extra_cost = 0;
  };

  RunList Make(const std::vector<Gap>& gaps);
  bool Repair(std::vector<Gap>& gaps, RunList& list, int64_t budget);
  bool OpenGaps(std::vector<Gap>& gaps, const RunList& list, int64_t budget);
  void Polish(std::vector<Gap>& gaps, RunList& list, int64_t budget);
  void Vary(std::vector<Gap>& gaps, RunList& list, int64_t budget);
  std::vector<size_t> DearestFirst(const std::vector<Gap>& gaps) const;
  bool Exhausted() const { return spent_ >= limit_; }

  const PlanProblem& p_;
  const NodeCosts& costs_;
  Retention retention_;
  std::vector<Candidate> seeds_;
  std::vector<StorageId> barred_;  // storages that Repair must not open a gap for
  int64_t least_peak_ = 0, spent_ = 0, limit_ = 0;
};

// Proven lower bounds of the extra cost, as functions of the budget: at the end of each forward
// pass and at `moments` more, spread over backward, what has to be made again of what is needed
// later, when only the budget less the node's working set can be kept.
std::vector<KeepBound> CostBounds(const PlanProblem& problem, const NodeCosts& costs, int moments);

// The answer for one budget, seeded by none, sqrt, uniform:K, the chain planners and selective
// ones. At most `work` runs are looked at, and as many states as a record of 60 storages needs.
PlanAnswer PlanSearch(const Graph& graph, const NodeCosts& costs, int64_t budget,
                      int64_t work = 200'000'000);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_SEARCH_H_
