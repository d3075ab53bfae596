// Plans as text and JSON, over the graph that they are of.
//
//   plan sqrt
//   graph 61 nodes 74 storages
//   segment recomputed h.0 h.1
//   segment kept h.2
//   run 0 linear  # h.0: %4 f32[8,16]
//   free 3  # 512 B activation h.0.w
//   run 0 linear  # again, h.0: %4 f32[8,16]
//
// One step a line. The op after a node's number must be that of the graph, so that a plan is not
// taken for another graph's. What follows '#' is for the reader: scope, what a node makes, the
// size, origin and name of a storage. Names with spaces or other unsafe characters are JSON
// strings. `note TEXT` gives Plan::note.
//
// JSON: {"schema": "tally.plan/1", "name", "note", "nodes", "storages",
//        "segments": [{"recomputed", "blocks": ["h.0", ...]}],
//        "steps": [{"run": 0, "op": "linear"}, {"free": 3}, ...]}
#ifndef TALLY_IO_PLAN_TEXT_H_
#define TALLY_IO_PLAN_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/plan.h"

namespace tally {

// Of a plan that is valid for `graph`. The same plan gives the same bytes.
std::string PlanText(const Graph& graph, const Plan& plan);
std::string PlanJsonText(const Graph& graph, const Plan& plan);

// Reads either form; which one it is shows in the first character. What is read is a valid plan for
// `graph` (ValidatePlan), equal to the one that was written but for blocks of equal scope paths.
// kInvalidArgument with the place ("plan text: line 3: ...", "plan JSON: step 7 ..."); text is
// bounded by its own size, JSON by JsonLimits.
absl::StatusOr<Plan> ParsePlan(const Graph& graph, absl::string_view text);

}  // namespace tally

#endif  // TALLY_IO_PLAN_TEXT_H_
