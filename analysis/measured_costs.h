// What nodes cost on this machine: seconds of a timing run, for planners to trade against bytes.
#ifndef TALLY_ANALYSIS_MEASURED_COSTS_H_
#define TALLY_ANALYSIS_MEASURED_COSTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/planner.h"
#include "tally/autograd/bindings.h"

namespace tally {

// Runs the record without recomputation (PlanNone) on copies of `bindings`, once to warm up and
// `repeats` times that count, and takes the least seconds of each node; views 0. On the device of
// the bindings. Where there are none of a real run, StandInBindings will do: few kernels take a
// time that depends on values. Errors: those of PlanExecutor, and kInvalidArgument on meta, where
// nothing takes time.
absl::StatusOr<NodeCosts> MeasureCosts(const Graph& graph, const PlanBindings& bindings,
                                       int repeats = 3);

// PlanRun::seconds or TimeNodes as costs.
NodeCosts MeasuredCosts(std::vector<double> seconds);

}  // namespace tally

#endif  // TALLY_ANALYSIS_MEASURED_COSTS_H_
