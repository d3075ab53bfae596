// --diff: two reports, key by key.
#ifndef TALLY_TOOLS_GRAPH_REPORT_DIFF_H_
#define TALLY_TOOLS_GRAPH_REPORT_DIFF_H_

#include <string>

#include "tally/io/json.h"

namespace tally {

// A table of the keys whose values differ, with delta and ratio where both are numbers; what is
// live at the peak is left to the reports themselves. Says so when nothing differs.
std::string DiffReports(const Json& one, const Json& other, const std::string& one_name,
                        const std::string& other_name);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_DIFF_H_
