// --csv: one line a node.
#ifndef TALLY_TOOLS_GRAPH_REPORT_CSV_H_
#define TALLY_TOOLS_GRAPH_REPORT_CSV_H_

#include <string>

#include "tally/io/report.h"

namespace tally {

// Columns: node op phase serves scope inputs outputs matmul other transcendental bytes_read
// bytes_written saved_bytes (storages that values saved for this node's gradient lie in, each
// once), and on hardware intensity (FLOPs of all columns per byte), seconds (the least that the
// node takes) and bound (compute, memory, nothing). RFC 4180 with '\n' ends.
std::string GraphCsv(const Report& report);

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_CSV_H_
