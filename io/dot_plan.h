// What a plan does with each node, for drawing.
#ifndef TALLY_IO_DOT_PLAN_H_
#define TALLY_IO_DOT_PLAN_H_

#include <vector>

#include "tally/io/dot_drawing.h"

namespace tally::dot {

struct PlanView {
  std::vector<int> runs;             // per node; 1 without a plan
  std::vector<Retention> retention;  // per node; kUnknown without a plan
  std::vector<uint8_t> marks;        // per node: both, as one number
};

// kInvalidArgument when the plan names a node that is not there.
absl::Status ReadPlan(const Graph& graph, const Plan* plan, PlanView& view);

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_PLAN_H_
