// What a report says that takes more than one trace: what grows with the batch, the largest that
// fits, and smaller batches and other dtypes that would.
#ifndef TALLY_TOOLS_GRAPH_REPORT_COMPLETE_H_
#define TALLY_TOOLS_GRAPH_REPORT_COMPLETE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tally/tools/graph_report/source.h"

namespace tally {

// LoadReport, then the polynomials of all sizes (all_sizes.h), the batch split of its budget, the remedies of its verdict where it does not
// fit, and the answer to --fit. kInvalidArgument where --fit asks what cannot be traced: of a file
// with a recorded graph alone, or for a sequence of a model that takes none.
absl::StatusOr<Report> LoadWholeReport(const std::string& model, const ReportOptions& options);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_COMPLETE_H_
