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

// What a point of the front is called: the name of its plan, where that alone makes it again. What
// the search of the front found, from many budgets at once, is "front-N", N counting the front from
// 1; the file FrontFile is the plan: --plan=@FILE runs it.
std::string FrontName(const Report& report, size_t point);
// "front-3.txt", beside report.json: "" for a plan whose name is enough.
std::string FrontFile(const Report& report, size_t point);

// {floor floor_node planned complete points[{name peak saved extra_cost extra_nodes
//  recompute_flops least_cost file}]}; null where it was not asked for. least_cost: proven, no plan with
// that peak costs less. Costs are FLOPs or seconds, as plans.NAME.cost_unit says.
Json FrontJson(const Report& report);

// A line a point: RFC 4180 with '\n' ends.
std::string FrontCsv(const Report& report);

// What each kept storage buys, of every plan that was asked for: bytes, and what it would cost to
// make them again instead, the dearest byte first. "" where the request does not ask for it.
std::string WorthSummary(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_FRONT_H_
