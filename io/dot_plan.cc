#include "tally/io/dot_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tally::dot {

absl::Status ReadPlan(const Graph& graph, const Plan* plan, PlanView& view) {
  const size_t count = graph.nodes.size();
  view.runs.assign(count, 1);
  view.retention.assign(count, Retention::kUnknown);
  view.marks.assign(count, 0);
  view.before.assign(count, kNone);
  if (plan == nullptr) return absl::OkStatus();
  view.runs.assign(count, 0);
  // The node whose first run made what is in each storage now; kNone: an input, or made again.
  std::vector<NodeId> maker(graph.storages.size(), kNone);
  std::vector<bool> kept(count, false);
  std::vector<NodeId> waiting;  // ran again since the last first run
  for (const PlanStep& step : plan->steps) {
    if (step.kind == PlanStep::kFree) {
      if (step.id >= 0 && static_cast<size_t>(step.id) < maker.size()) maker[step.id] = kNone;
      continue;
    }
    if (step.id < 0 || static_cast<size_t>(step.id) >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan ", plan->name, ": there is no node ", step.id, " in this graph"));
    }
    const Node& node = graph.nodes[step.id];
    const bool again = ++view.runs[step.id] > 1;
    if (again || node.phase == Phase::kBackward || node.phase == Phase::kRecompute) {
      for (ValueId v : graph.in(node)) {
        const NodeId made_by = maker[graph.values[v].storage];
        if (made_by != kNone) kept[made_by] = true;
      }
    }
    if (node.op->kind == OpKind::kCompute) {
      for (ValueId v : graph.out(node))
        maker[graph.values[v].storage] = again ? kNone : static_cast<NodeId>(step.id);
    }
    if (again) {
      waiting.push_back(step.id);
      continue;
    }
    for (NodeId n : waiting) {
      if (view.before[n] == kNone) view.before[n] = step.id;
    }
    waiting.clear();
  }
  for (size_t n = 0; n < count; ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase == Phase::kForward && node.op->kind == OpKind::kCompute) {
      Retention& r = view.retention[n];
      r = view.runs[n] > 1 ? Retention::kDropped
          : kept[n]        ? Retention::kRetained
                           : Retention::kTransient;
    }
    view.marks[n] =
        static_cast<uint8_t>(std::min(view.runs[n], 15) * 8 + static_cast<int>(view.retention[n]));
  }
  return absl::OkStatus();
}

}  // namespace tally::dot
