// report.json, schema "tally.report/1": every figure of a Report under a stable key.
//
//   model{name source format family parameters parameters_embedding parameters_matmul tied}
//   run{phase batch sequence tokens dtype optimizer}
//   flops{forward{matmul weight_matmul activation_matmul other transcendental}
//         backward{matmul input_grad weight_grad other transcendental}
//         recompute{matmul other} optimizer{other} model hardware}
//   proof{holds parameters[{name numel rows forward input_grad weight_grad reason}]
//         reconciliation[{term flops}]}
//   memory{parameters gradients optimizer inputs saved saved_viewed saved_inputs workspace peak
//          peak_node at_peak[{name bytes origin scope}] recipe}
//   rules[{name flops ratio}]
//   plans[{name peak saved recompute_flops extra_nodes ratio_peak ratio_flops fits ..}]
//        (io/summary_plans.h)
//   front{floor floor_node planned complete points[{name peak ..}]} (io/summary_front.h)
//   time{hardware peak_flops bandwidth nodes_compute_bound nodes_memory_bound seconds mfu_bound ..}
//        (io/summary_time.h)
//
// FLOPs of the matmul column unless the key says otherwise; bytes; what is not known is null.
// Where a step has contractions of two parameters or gradients of gradients, flops.forward has also
// parameter_products and flops.backward other_contractions. reconciliation is that of 6ND with all
// parameters; its last entry, "difference", is the sum of the terms less flops.model, and 0 when
// the proof holds. ratio of a rule is to flops.model, ratio_peak to memory.peak, ratio_flops to
// flops.hardware.
#ifndef TALLY_IO_REPORT_JSON_H_
#define TALLY_IO_REPORT_JSON_H_

#include <string>

#include "tally/io/json.h"
#include "tally/io/report.h"

namespace tally {

Json ReportToJson(const Report& report);
std::string ReportJsonText(const Report& report);  // with a newline at the end

// The name that a storage has in the report: the user's, or "%17" after the first value in it, or
// "scratch 17".
std::string ReportName(const Graph& graph, StorageId storage, ValueId first_value);
// " (batch seq hidden)": the names of a value's axes; "" where it has none.
std::string AxesText(const Graph& graph, ValueId value);

}  // namespace tally

#endif  // TALLY_IO_REPORT_JSON_H_
