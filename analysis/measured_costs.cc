#include "tally/analysis/measured_costs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/simulate.h"
#include "tally/autograd/execute.h"

namespace tally {

absl::StatusOr<NodeCosts> MeasureCosts(const Graph& graph, const PlanBindings& bindings,
                                       int repeats) {
  if (repeats < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("measured costs: ", repeats, " runs; at least one is timed"));
  }
  for (const auto& [value, tensor] : bindings.values) {
    if (!tensor.defined() || !tensor.device().is_meta()) continue;
    return absl::InvalidArgumentError(
        "measured costs: the bindings are on meta, where nothing runs; bind tensors on cpu");
  }
  const Plan plan = PlanNone(graph);
  TALLY_ASSIGN_OR_RETURN(const PlanExecutor executor, PlanExecutor::Create(graph, plan));
  TALLY_ASSIGN_OR_RETURN(std::vector<double> seconds, TimeNodes(executor, bindings, repeats));
  return MeasuredCosts(std::move(seconds));
}

NodeCosts MeasuredCosts(std::vector<double> seconds) {
  return {.of = std::move(seconds), .unit = NodeCosts::kSeconds};
}

}  // namespace tally
