// What a plan does with each node, for drawing.
#ifndef TALLY_IO_DOT_PLAN_H_
#define TALLY_IO_DOT_PLAN_H_

#include <vector>

#include "tally/io/dot_drawing.h"

namespace tally::dot {

struct PlanView {
  std::vector<int> runs;             // per node; 1 without a plan
  std::vector<NodeId> before;        // per node: that runs for its first time after its second run
  std::vector<Retention> retention;  // per node; kUnknown without a plan
  std::vector<uint8_t> marks;        // per node: both, as one number
};

// Retained is what lives from its first run until backward, or a second run, reads it; dropped is
// what is made again instead. kInvalidArgument when the plan names a node that is not there.
absl::Status ReadPlan(const Graph& graph, const Plan* plan, PlanView& view);

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_PLAN_H_
