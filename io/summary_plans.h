// The section "plans" of the summary and of report.json: every plan that was asked for, what it
// costs and what it frees, and why there is none where there is none.
#ifndef TALLY_IO_SUMMARY_PLANS_H_
#define TALLY_IO_SUMMARY_PLANS_H_

#include <string>
#include <vector>

#include "tally/analysis/plan_levels.h"
#include "tally/io/json.h"
#include "tally/io/memory_svg.h"
#include "tally/io/report.h"

namespace tally {

std::string PlansSummary(const Report& report);

// [{name peak saved recompute_flops extra_nodes ratio_peak ratio_flops fits
//   extra_cost cost_unit cost_source note answer optimal cheapest bound bound_node best}]
// The plans of the report in order, then those that were refused: all null but the name, fits and
// the answer. The last five keys are null of plans without a budget. Costs are FLOPs or seconds.
Json PlansJson(const Report& report);

// The plan's name for people, as in every table: a long number of bytes rounded down to as many
// digits as tell the plans of the report apart (PlanTitles). JSON, CSV and files have the name.
std::string PlanTitle(const Report& report, const std::string& name);

// "sqrt(L) loses here: ..." with both peaks and why; says so too when it does not lose.
std::string SqrtText(const SqrtVerdict& verdict);

// Why there is no plan, with the bound, the node that forces it and the gap.
std::string RefusalText(const Report& report, const RefusedPlan& plan);
// The same of a planner's answer that is no plan, within `budget` bytes: of one device, or of a
// rank. `lower` is a plan at hand with a lower peak than the planner reached; null: none.
std::string NoPlanText(const Graph& graph, PlanSpec::Kind planner, const PlanAnswer& answer,
                       int64_t budget, bool rank, const PricedPlan* lower = nullptr);

// Of `plans`, indexes into those of the report, at most `most`, in its order: the one that it fits
// as, fit and those that were named, then by peak, the least first and one of each.
std::vector<size_t> PlansToShow(const Report& report, std::vector<size_t> plans, size_t most);
// "sqrt, uniform:2 and 14 more": the titles of `plans` without those `shown`; "" of none.
std::string PlansNotShown(const Report& report, const std::vector<size_t>& plans,
                          const std::vector<size_t>& shown);

// Where the costs that planners trade against bytes come from: "measured: the least of 3 runs of
// each node on this machine's CPU, 2 threads", "at least, on NVIDIA H100 SXM 80 GB".
std::string CostSource(const Report& report);

// "3.21 GFLOPs", "12.3 ms".
std::string CostText(const NodeCosts& costs, double amount);

// The record (where it differs from last-use liveness) and the plans of the report, over seconds
// where its hardware is known, else over nodes run; of many plans those of PlansToShow, with a
// note.
MemoryChart MemoryChartOf(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_PLANS_H_
