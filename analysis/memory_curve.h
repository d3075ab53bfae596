// MemoryCurve: how many bytes live while each node runs, and of which origin: of a record or of a
// plan. What a picture of memory over time is drawn from.
#ifndef TALLY_ANALYSIS_MEMORY_CURVE_H_
#define TALLY_ANALYSIS_MEMORY_CURVE_H_

#include <array>
#include <vector>

#include "tally/analysis/live_steps.h"

namespace tally {

// One run of a node.
struct CurvePoint {
  NodeId node = kNone;
  bool again = false;  // it ran before
  // At the most during it, scratch included; add up to `total`.
  std::array<int64_t, kNumOrigins> by_origin{};
  int64_t total = 0;
};

// In order of execution. The greatest total is AnalyzeMemory's peak (of RecordedSteps) or
// PricePlan's (of PlannedSteps), unless the record's is after its last node or where no node runs.
// Linear in the steps.
std::vector<CurvePoint> MemoryCurve(const Graph& graph, const std::vector<LiveStep>& steps);

}  // namespace tally

#endif  // TALLY_ANALYSIS_MEMORY_CURVE_H_
