// MODEL to a recorded graph: reads a file, or traces a built-in model on meta.
#ifndef TALLY_TOOLS_GRAPH_REPORT_SOURCE_H_
#define TALLY_TOOLS_GRAPH_REPORT_SOURCE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tally/io/report.h"
#include "tally/tools/graph_report/options.h"

namespace tally {

// Blocks times micro-batches of a trace, each with nodes of its own.
inline constexpr int64_t kMostBlocks = 20'000;

// Blocks of a family: what a trace has nodes of.
int64_t BlocksOf(const FamilyConfig& family);

// What a graph was traced from, so that it can be traced again with something changed.
struct TracedStep {
  FamilyConfig family;
  TraceOptions trace;
  bool recorded = false;  // the graph is one that a file holds; this is what its config says of it
};

struct LoadedModel {
  Graph graph;
  ReportSource source;
  std::optional<TracedStep> step;  // nullopt: a recorded graph of no family
};

// A built-in name wins over a file of that name; "./gpt2" is the file. Errors:
//   kInvalidArgument: usage. A name that is none (with what it probably meant), bad sizes of a
//   built-in model, flags that do not fit the model, flags
//     that would change a file that has only a recorded graph.
//   kUnimplemented: recognised, but not supported
//   kDataLoss: missing, unreadable or malformed
absl::StatusOr<LoadedModel> LoadModel(const std::string& model, const ReportOptions& options);
// All analyses of it, with the plans of the options. Also kDataLoss for a graph that is no record.
// `step`, where given, gets that of the loaded model.
absl::StatusOr<Report> LoadReport(const std::string& model, const ReportOptions& options,
                                  std::optional<TracedStep>* step = nullptr);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_SOURCE_H_
