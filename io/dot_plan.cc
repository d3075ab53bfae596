#include "tally/io/dot_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tally::dot {

absl::Status ReadPlan(const Graph& graph, const Plan* plan, PlanView& view) {
  const size_t count = graph.nodes.size();
  view.runs.assign(count, 1);
  view.retention.assign(count, Retention::kUnknown);
  view.marks.assign(count, 0);
  if (plan == nullptr) return absl::OkStatus();
  view.runs.assign(count, 0);
  for (const PlanStep& step : plan->steps) {
    if (step.kind != PlanStep::kRun) continue;
    if (step.id < 0 || static_cast<size_t>(step.id) >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan ", plan->name, ": there is no node ", step.id, " in this graph"));
    }
    ++view.runs[step.id];
  }
  // Storages that backward, or a node that runs again, reads.
  std::vector<bool> kept(graph.storages.size(), false);
  for (size_t n = 0; n < count; ++n) {
    const Node& node = graph.nodes[n];
    const bool later = node.phase == Phase::kBackward || node.phase == Phase::kRecompute;
    if (!later && view.runs[n] < 2) continue;
    for (ValueId v : graph.in(node)) kept[graph.values[v].storage] = true;
  }
  for (size_t n = 0; n < count; ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase == Phase::kForward && node.op->kind == OpKind::kCompute) {
      Retention& r = view.retention[n];
      r = Retention::kTransient;
      for (ValueId v : graph.out(node)) {
        if (kept[graph.values[v].storage]) r = Retention::kRetained;
      }
      if (view.runs[n] > 1) r = Retention::kDropped;
    }
    view.marks[n] =
        static_cast<uint8_t>(std::min(view.runs[n], 15) * 8 + static_cast<int>(view.retention[n]));
  }
  return absl::OkStatus();
}

}  // namespace tally::dot
