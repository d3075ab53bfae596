// --cost=measured: what each node of a step takes on this machine, by running it.
#ifndef TALLY_TOOLS_GRAPH_REPORT_MEASURE_H_
#define TALLY_TOOLS_GRAPH_REPORT_MEASURE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "tally/io/report.h"
#include "tally/tools/graph_report/source.h"

namespace tally {

// Runs `graph`, which passes Verify, on the CPU: once to warm up and three times that count; nodes
// take the least of their seconds. A traced `step` is traced there again and runs on what it read,
// fresh weights and batches; a graph that a file recorded runs on stand-in values of its specs.
// Takes about twice the memory of the step. kInvalidArgument, with the flag and the way out: more
// memory than this machine has at hand, or a step that cannot be run here.
absl::StatusOr<MeasuredNodes> MeasureStep(const std::optional<TracedStep>& step,
                                          const Graph& graph);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_MEASURE_H_
