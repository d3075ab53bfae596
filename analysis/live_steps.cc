#include "tally/analysis/live_steps.h"

namespace tally {

std::vector<bool> StoragesWithValues(const Graph& graph) {
  std::vector<bool> has_value(graph.storages.size(), false);
  for (const Value& value : graph.values) has_value[value.storage] = true;
  return has_value;
}

std::vector<LiveStep> RecordedSteps(const Graph& graph) {
  std::vector<LiveStep> steps;
  steps.reserve(graph.storages.size() + 2 * graph.events.size() + graph.nodes.size() + 2);
  // Residents that the record does not allocate are there before the first event.
  std::vector<bool> allocated(graph.storages.size(), false);
  for (const StorageEvent& e : graph.events) {
    if (e.kind == StorageEvent::kAllocate) allocated[e.storage] = true;
  }
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    if (graph.storages[s].resident && !allocated[s])
      steps.push_back({.kind = LiveStep::kBegin, .id = static_cast<StorageId>(s)});
  }
  steps.push_back({.id = 0});
  size_t i = 0;
  for (NodeId at = 0; at <= static_cast<NodeId>(graph.nodes.size()); ++at) {
    for (; i < graph.events.size() && graph.events[i].at <= at; ++i) {
      const StorageEvent& e = graph.events[i];
      const bool begins = e.kind == StorageEvent::kAllocate;
      steps.push_back({.kind = begins ? LiveStep::kBegin : LiveStep::kEnd, .id = e.storage});
      if (begins) steps.push_back({.id = at});
    }
    steps.push_back({.id = at});
  }
  return steps;
}

std::vector<LiveStep> PlannedSteps(const Graph& graph, const Plan& plan) {
  const std::vector<int64_t> scratch = ScratchBytes(graph);
  std::vector<bool> live(graph.storages.size(), false), ran(graph.nodes.size(), false);
  std::vector<LiveStep> steps;
  const auto begin = [&](StorageId s) {
    if (live[s]) return;
    live[s] = true;
    steps.push_back({.kind = LiveStep::kBegin, .id = s});
  };
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    if (graph.storages[s].resident) begin(static_cast<StorageId>(s));
  }
  steps.push_back({.id = 0});
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::kFree) {
      live[step.id] = false;
      steps.push_back({.kind = LiveStep::kEnd, .id = step.id});
      continue;
    }
    const Node& node = graph.nodes[step.id];
    for (ValueId v : graph.in(node)) begin(graph.values[v].storage);
    for (ValueId v : graph.out(node)) begin(graph.values[v].storage);
    steps.push_back({.again = ran[step.id], .id = step.id, .scratch = scratch[step.id]});
    ran[step.id] = true;
  }
  return steps;
}

}  // namespace tally
