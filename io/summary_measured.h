// The section "measured" of the summary and of report.json: what a step took that was run, beside
// what was foretold of it.
#ifndef TALLY_IO_SUMMARY_MEASURED_H_
#define TALLY_IO_SUMMARY_MEASURED_H_

#include <optional>
#include <string>

#include "tally/analysis/utilization.h"
#include "tally/io/json.h"
#include "tally/io/report.h"

namespace tally {

// A run beside what was foretold of the step under its plan.
struct MeasuredBeside {
  const MeasuredRun* run = nullptr;
  const PricedPlan* plan = nullptr;
  double tokens_per_second = 0;
  std::optional<double> floor;             // seconds at least, on the request's hardware
  std::optional<Utilization> utilization;  // against its peak
  bool equal() const { return run->peak == plan->price.peak_bytes; }
};
// In the order of the runs; empty where nothing was run.
std::vector<MeasuredBeside> MeasuredBesideOf(const Report& report);

// "" where nothing was run.
std::string MeasuredSummary(const Report& report);

// {device how reserved workspace plans[{name seconds tokens_per_second peak predicted_peak equal
//  floor over_floor mfu hfu}]}; null where nothing was run. Times in seconds, memory in bytes.
Json MeasuredJson(const Report& report);

// The plans whose measured peak is not the predicted one, with both; "" where all are equal.
std::string UnequalPeaks(const Report& report);

}  // namespace tally

#endif  // TALLY_IO_SUMMARY_MEASURED_H_
