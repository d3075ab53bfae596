// --explain=KEY: where a figure of report.json comes from.
#ifndef TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_H_
#define TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/io/report.h"
#include "tally/tools/graph_report/keys.h"

namespace tally {

// One node, storage or parameter behind a figure, and what it adds to it.
struct ExplainedPart {
  enum Kind : uint8_t { kNode, kStorage, kFigure };
  Kind kind = kNode;
  int32_t id = kNone;
  std::string what;  // "linear, 2·1,024·1,769,472, in h.0/attn"
  Count amount = 0;
};

struct Explanation {
  std::string formula;      // in words
  std::string substituted;  // the formula with its numbers; "" when the parts say it all
  std::string unit;         // "FLOPs", "B", ""
  bool adds_up = false;     // the parts add up to the figure
  std::vector<ExplainedPart> parts;
};

// `key` is one of ReportToJson(report) that has a value of its own.
Explanation ExplainKey(const Report& report, const ReportKey& key);

// The whole answer; for a key with others below it, those. kInvalidArgument for an unknown key;
// kInternal when parts that should add up do not.
absl::StatusOr<std::string> ExplainText(const Report& report, const Json& json,
                                        const std::string& key);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_H_
