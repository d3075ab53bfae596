// The text that graph-report prints: one Report in at most 100 columns.
#ifndef TALLY_IO_SUMMARY_H_
#define TALLY_IO_SUMMARY_H_

#include <string>

#include "tally/io/report.h"

namespace tally {

// Header, contractions, reconciliation with 6ND, what deviates from the textbook, other FLOPs,
// memory, plans, top ops and scopes, counting conventions. Ends in a newline; names in it are safe
// for a terminal.
std::string Summary(const Report& report);

// "h.3/attn" as "h.*/attn": the same place in every block.
std::string ScopePattern(const std::string& path);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_H_
