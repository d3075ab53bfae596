// The front of all planners in words: which plans are worth having, how far from proven, and what
// the bytes buy that a plan keeps.
#ifndef TALLY_IO_SUMMARY_FRONT_H_
#define TALLY_IO_SUMMARY_FRONT_H_

#include <string>

#include "tally/io/json.h"
#include "tally/io/report.h"

namespace tally {

// A table of the front, peaks ascending, with the proven bounds beside it. "" where the request
// does not ask for the front.
std::string FrontSummary(const Report& report);

// {floor floor_node planned complete points[{name peak saved extra_cost extra_nodes
//  recompute_flops least_cost}]}; null where it was not asked for. least_cost: proven, no plan with
// that peak costs less. Costs are FLOPs or seconds, as plans.NAME.cost_unit says.
Json FrontJson(const Report& report);

// A line a point: RFC 4180 with '\n' ends.
std::string FrontCsv(const Report& report);

// What each kept storage buys, of every plan that was asked for: bytes, and what it would cost to
// make them again instead, the dearest byte first. "" where the request does not ask for it.
std::string WorthSummary(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_FRONT_H_
