// The memory part of the summary, and what all parts share. Part of Summary.
#ifndef TALLY_IO_SUMMARY_MEMORY_H_
#define TALLY_IO_SUMMARY_MEMORY_H_

#include <string>

#include "tally/io/report.h"
#include "tally/io/table.h"

namespace tally {

inline constexpr size_t kSummaryTop = 8;  // lines of a table of the greatest

// The table, two columns to the right.
std::string IndentedLines(const Table& table);

// Sums, peak, what kept what, and what lives at the peak.
std::string MemorySummary(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_MEMORY_H_
