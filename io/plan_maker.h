// PlanMaker: from the name of a plan to the plan. The one place that knows all planners.
#ifndef TALLY_IO_PLAN_MAKER_H_
#define TALLY_IO_PLAN_MAKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/plan_front.h"
#include "tally/analysis/planner.h"
#include "tally/analysis/zero.h"

namespace tally {

// Of one graph. What several plans share (the front of all planners) is made once, when it is first
// asked for.
class PlanMaker {
 public:
  // `graph` must pass Verify and outlive this. `usable`: bytes that `fit` may take, on each of
  // `ranks`; nullopt where nothing says how much there is.
  PlanMaker(const Graph& graph, NodeCosts costs, std::optional<int64_t> usable = std::nullopt,
            const ZeroOptions& ranks = {});

  // What Make will be asked for, told before the first of them: the front is then made with their
  // budgets in mind, so that `optimal:BYTES` is never dearer than `search:BYTES` and no answer
  // depends on the order of the questions. Make tells itself of the first.
  void Expect(const std::vector<PlanSpec>& specs);

  // The plan is validated and named by its PlanName; where it is another's (of the front), the note
  // says whose. A plan without a budget is always kPlan. The bytes of an answer to `fit` are of a
  // rank (analysis/plan_rank.h). kInvalidArgument: `fit` without `usable`. kDataLoss: a file that
  // cannot be read or is no plan of this graph, with the path and the line. kFailedPrecondition: a
  // planner of chains and a record that is none, with what of it is not. Cost: the planner's.
  absl::StatusOr<PlanAnswer> Make(const PlanSpec& spec);

  // One spec of each planner that does not want a budget; of those with a number, the values that
  // make a difference on this graph: uniform:K for each number of segments, revolve:C for powers of
  // two. Those with a budget
  // come in where `usable` is known.
  std::vector<PlanSpec> All() const;

  // Of all planners, and of the plans that were made before it is first asked for: ask for those
  // that need no front (NeedsFront) first, and no plan of a report beats its front.
  const std::shared_ptr<const PlanFront>& front();

  const NodeCosts& costs() const { return costs_; }

 private:
  void AddMade(PlanFront& front);
  int AtMostBlocks(int64_t number) const;
  absl::StatusOr<Plan> MakePlan(const PlanSpec& spec) const;
  absl::StatusOr<Plan> ReadPlan(const std::string& path) const;
  // The plan without recomputation, which needs no front to be the cheapest; nullopt above budget.
  std::optional<PlanAnswer> NoneWithin(int64_t budget, const ZeroOptions& ranks) const;
  Plan CutOrNone(int64_t bytes) const;
  absl::StatusOr<PlanAnswer> MakeWithin(const PlanSpec& spec);
  absl::StatusOr<PlanAnswer> MakeFit();

  const Graph& g_;
  const NodeCosts costs_;
  const std::optional<int64_t> usable_;
  const ZeroOptions ranks_;
  std::vector<int64_t> asked_;  // budgets of the front
  std::vector<PlanPoint> made_;  // before it, with their names
  std::shared_ptr<const PlanFront> front_;
};

// Whether Make answers it from the front.
bool NeedsFront(const PlanSpec& spec);

}  // namespace tally

#endif  // TALLY_IO_PLAN_MAKER_H_
