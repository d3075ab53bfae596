#include "tally/analysis/memory_curve.h"

namespace tally {

std::vector<CurvePoint> MemoryCurve(const Graph& graph, const std::vector<LiveStep>& steps) {
  std::vector<CurvePoint> curve;
  std::array<int64_t, kNumOrigins> live{};
  int64_t total = 0;
  const auto nodes = static_cast<NodeId>(graph.nodes.size());
  for (const LiveStep& step : steps) {
    if (step.kind != LiveStep::kAt) {
      const StorageRecord& storage = graph.storages[step.id];
      const int64_t change = step.kind == LiveStep::kBegin ? storage.bytes : -storage.bytes;
      live[static_cast<size_t>(storage.origin)] += change;
      total += change;
      continue;
    }
    if (step.id >= nodes) continue;  // after the last one
    // A record stands at a node once for each event before it.
    if (curve.empty() || curve.back().node != step.id || curve.back().again != step.again)
      curve.push_back({.node = step.id, .again = step.again});
    CurvePoint& point = curve.back();
    if (total + step.scratch < point.total) continue;
    point.by_origin = live;
    point.by_origin[static_cast<size_t>(Origin::kScratch)] += step.scratch;
    point.total = total + step.scratch;
  }
  return curve;
}

}  // namespace tally
