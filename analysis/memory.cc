#include "tally/analysis/memory.h"

#include <algorithm>

namespace tally {
namespace {

// Residents that the record does not allocate are there before the first event.
std::vector<bool> LiveAtStart(const Graph& graph) {
  std::vector<bool> live(graph.storages.size());
  for (size_t s = 0; s < live.size(); ++s) live[s] = graph.storages[s].resident;
  for (const StorageEvent& e : graph.events) {
    if (e.kind == StorageEvent::kAllocate) live[e.storage] = false;
  }
  return live;
}

std::vector<LiveStorage> Describe(const Graph& graph, const std::vector<bool>& live) {
  std::vector<ValueId> first(graph.storages.size(), kNone);
  for (size_t v = graph.values.size(); v-- > 0;)
    first[graph.values[v].storage] = static_cast<ValueId>(v);
  std::vector<LiveStorage> list;
  for (size_t s = 0; s < live.size(); ++s) {
    const StorageRecord& record = graph.storages[s];
    if (!live[s] || record.bytes == 0) continue;
    LiveStorage item;
    item.storage = static_cast<StorageId>(s);
    item.bytes = record.bytes;
    item.origin = record.origin;
    item.value = first[s];
    if (record.name != kNone) item.name = graph.name(record.name);
    if (item.value != kNone) {
      const Value& value = graph.values[item.value];
      if (item.name.empty() && value.name != kNone) item.name = graph.name(value.name);
      item.producer = value.producer;
      if (value.producer != kNone) item.scope = graph.nodes[value.producer].scope;
    }
    list.push_back(std::move(item));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const LiveStorage& a, const LiveStorage& b) { return a.bytes > b.bytes; });
  return list;
}

}  // namespace

MemoryReport AnalyzeMemory(const Graph& graph) {
  MemoryReport report;
  report.baseline_bytes = graph.baseline_bytes;
  report.curve.assign(graph.nodes.size() + 1, 0);
  const std::vector<bool> start = LiveAtStart(graph);
  int64_t live = 0;
  for (size_t s = 0; s < start.size(); ++s) live += start[s] ? graph.storages[s].bytes : 0;
  report.peak_bytes = live;
  if (live > 0) report.peak_node = 0;
  size_t peak_event = 0;  // events applied at the peak
  size_t i = 0;
  for (NodeId position = 0; position <= static_cast<NodeId>(graph.nodes.size()); ++position) {
    for (; i < graph.events.size() && graph.events[i].at <= position; ++i) {
      const StorageEvent& e = graph.events[i];
      const int64_t bytes = graph.storages[e.storage].bytes;
      if (e.kind == StorageEvent::kFree) {
        live -= bytes;
        continue;
      }
      live += bytes;
      report.curve[position] = std::max(report.curve[position], live);
      if (live > report.peak_bytes) {
        report.peak_bytes = live;
        report.peak_node = position;
        peak_event = i + 1;
      }
    }
    report.curve[position] = std::max(report.curve[position], live);
  }
  report.end_bytes = live;

  std::vector<bool> at_peak = start;
  for (size_t e = 0; e < peak_event; ++e) {
    at_peak[graph.events[e].storage] = graph.events[e].kind == StorageEvent::kAllocate;
  }
  report.at_peak = Describe(graph, at_peak);
  for (const LiveStorage& s : report.at_peak)
    report.peak_by_origin[static_cast<size_t>(s.origin)] += s.bytes;
  report.none = PriceValidPlan(graph, PlanNone(graph));
  return report;
}

}  // namespace tally
