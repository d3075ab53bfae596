// PlanMaker: from the name of a plan to the plan. The one place that knows all planners.
#ifndef TALLY_IO_PLAN_MAKER_H_
#define TALLY_IO_PLAN_MAKER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/planner.h"

namespace tally {

// Of one graph. What several plans share (the front of all planners) is made once, when it is first
// asked for.
class PlanMaker {
 public:
  // `graph` must pass Verify and outlive this. `usable`: bytes that `fit` may take; nullopt where
  // nothing says how much there is.
  PlanMaker(const Graph& graph, NodeCosts costs, std::optional<int64_t> usable = std::nullopt);

  // The plan is validated and named by its PlanName. A plan without a budget is always kPlan.
  // kInvalidArgument: `fit` without `usable`. Cost: the planner's.
  absl::StatusOr<PlanAnswer> Make(const PlanSpec& spec);

  // One spec of each planner that does not want a budget; of those with a number, the values that
  // make a difference on this graph: uniform:K for each number of segments. Those with a budget
  // come in where `usable` is known.
  std::vector<PlanSpec> All() const;

  const NodeCosts& costs() const { return costs_; }

 private:
  Plan MakePlan(const PlanSpec& spec);

  const Graph& g_;
  const NodeCosts costs_;
  const std::optional<int64_t> usable_;
};

}  // namespace tally

#endif  // TALLY_IO_PLAN_MAKER_H_
