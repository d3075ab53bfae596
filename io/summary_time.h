// The section "time" of the summary and of report.json: the roofline of the step on --hardware, and
// how long a run of --tokens takes. Without hardware nothing is told but how to ask.
#ifndef TALLY_IO_SUMMARY_TIME_H_
#define TALLY_IO_SUMMARY_TIME_H_

#include <optional>
#include <string>

#include "tally/io/json.h"
#include "tally/io/report.h"

namespace tally {

// Of a report whose other analyses are done: nothing without hardware; the run needs tokens too,
// and takes the request's MFU, or the most that the step's floor allows.
std::optional<RooflineReport> RooflineOf(const Report& report);
std::optional<RunTime> RunTimeOf(const Report& report);
// The MFU of the run.
std::optional<double> RunMfu(const Report& report);

std::string TimeSummary(const Report& report);

// {hardware peak peak_flops bandwidth ridge nodes_compute_bound nodes_memory_bound bound seconds
//  mfu_bound seconds_overlapped mfu_bound_overlapped seconds_fused mfu_bound_fused fused_nodes
//  fused_kernels fused_bytes_saved unpriced_flops phases{NAME{seconds bound}}
//  critical[{name rows_now rows}] plans[{name seconds}]
//  predicted{seconds floor forward backward recompute optimizer unmeasured_nodes unmeasured[OP]}
//  run{tokens gpus mfu flops seconds gpu_hours}}
// of which all but hardware (null then) is missing without hardware, run without tokens, and
// predicted where the hardware is no calibrated machine.
Json TimeJson(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_TIME_H_
