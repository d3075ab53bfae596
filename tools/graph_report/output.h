// Files that graph-report writes.
#ifndef TALLY_TOOLS_GRAPH_REPORT_OUTPUT_H_
#define TALLY_TOOLS_GRAPH_REPORT_OUTPUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/io/json.h"
#include "tally/io/report.h"
#include "tally/tools/graph_report/options.h"

namespace tally {

struct Written {
  std::string folder;                  // "": none
  std::vector<std::string>
      in_folder;  // names, of a plan's files together: "plan-none.{dot,txt,json}"
  std::vector<std::string> named;      // paths, as the flags name them
  // A picture could not be drawn; its DOT file is kept.
  absl::Status rendering;
};

// A text with the flag that says where it goes: "json". A path of "-" is stdout.
struct NamedOutput {
  std::string flag, path, text;
};
absl::StatusOr<Written> WriteNamed(const std::vector<NamedOutput>& outputs);

// Errors: kInvalidArgument when a folder or file cannot be made, or --focus matches nothing; then
// nothing is written.
absl::StatusOr<Written> WriteOutputs(const Report& report, const Json& json,
                                     const ReportOptions& options);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_OUTPUT_H_
