// The polynomials of a report that hold at all sizes, from traces of its family.
#ifndef TALLY_TOOLS_GRAPH_REPORT_ALL_SIZES_H_
#define TALLY_TOOLS_GRAPH_REPORT_ALL_SIZES_H_

#include <optional>

#include "absl/status/status.h"
#include "tally/tools/graph_report/source.h"

namespace tally {

// Nodes that the traces may have in all for polynomials to be recovered without being asked for:
// about a tenth of a second.
inline constexpr int64_t kMostTracedNodes = 25'000;

// Fills Report::all_sizes or, where there are none, the reason. `asked` is --polynomials; not told,
// a small graph has them. kInvalidArgument where it is true and the step cannot be traced at other
// sizes.
absl::Status AddAllSizes(const std::optional<TracedStep>& step, std::optional<bool> asked,
                         Report& report);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_ALL_SIZES_H_
