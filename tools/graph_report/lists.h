// --list-models, --list-hardware and --dtypes.
#ifndef TALLY_TOOLS_GRAPH_REPORT_LISTS_H_
#define TALLY_TOOLS_GRAPH_REPORT_LISTS_H_

#include <string>

namespace tally {

std::string ModelsText();
std::string HardwareText();
std::string DTypesText();

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_LISTS_H_
