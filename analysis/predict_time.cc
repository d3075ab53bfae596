#include "tally/analysis/predict_time.h"

#include <algorithm>
#include <map>

namespace tally {
namespace {

// Bytes of traffic since each operand's memory was last touched, n log n in the record.
class Distances {
 public:
  explicit Distances(const Graph& graph)
      : graph_(graph), block_(graph.storages.size(), kNone), distances_(graph.nodes.size()) {}

  // A first pass says what the step leaves behind, a second what the next step finds.
  void Run(const std::vector<Workload>& works) {
    for (int pass = 0; pass < 2; ++pass) {
      size_t event = 0;
      for (size_t n = 0; n < works.size(); ++n) {
        while (event < graph_.events.size() && graph_.events[event].at <= static_cast<NodeId>(n))
          Follow(graph_.events[event++]);
        Visit(n, works[n].bytes);
      }
      while (event < graph_.events.size()) Follow(graph_.events[event++]);
      // What outlived the step was freed by its caller, but for what was there before.
      for (size_t s = 0; s < block_.size(); ++s) {
        if (!graph_.storages[s].resident) Free(static_cast<StorageId>(s));
      }
    }
  }
  // Of a node's inputs, then outputs, in their order.
  const std::vector<double>& of(NodeId node) const { return distances_[node]; }

 private:
  using BlockId = int32_t;

  void Follow(const StorageEvent& event) {
    if (event.kind == StorageEvent::kAllocate) {
      if (block_[event.storage] == kNone) block_[event.storage] = Take(event.storage);
    } else if (!graph_.storages[event.storage].resident) {
      Free(event.storage);
    }
  }
  BlockId Take(StorageId storage) {
    std::vector<BlockId>& free = free_[graph_.storages[storage].bytes];
    if (free.empty()) {
      touched_.push_back(clock_);
      return static_cast<BlockId>(touched_.size()) - 1;
    }
    const BlockId block = free.back();
    free.pop_back();
    return block;
  }
  void Free(StorageId storage) {
    if (block_[storage] == kNone) return;
    free_[graph_.storages[storage].bytes].push_back(block_[storage]);
    block_[storage] = kNone;
  }
  void Visit(size_t n, double bytes) {
    const Node& node = graph_.nodes[n];
    if (node.op->kind == OpKind::kView) return;
    std::vector<double>& distances = distances_[n];
    distances.clear();
    const auto each = [&](const auto& visit) {
      for (const auto ids : {graph_.in(node), graph_.out(node)}) {
        for (const ValueId v : ids) {
          const StorageId storage = graph_.values[v].storage;
          if (storage != kNone && block_[storage] == kNone) block_[storage] = Take(storage);
          visit(storage == kNone ? kNone : block_[storage]);
        }
      }
    };
    each(
        [&](BlockId block) { distances.push_back(block == kNone ? 0 : clock_ - touched_[block]); });
    clock_ += bytes;
    each([&](BlockId block) {
      if (block != kNone) touched_[block] = clock_;
    });
  }

  const Graph& graph_;
  double clock_ = 0;
  std::vector<BlockId> block_;                    // by storage; kNone: it has none now
  std::vector<double> touched_;                   // by block: the clock when it was last touched
  std::map<int64_t, std::vector<BlockId>> free_;  // by bytes, the last freed at the back
  std::vector<std::vector<double>> distances_;
};

// What the node takes longer than by itself, since its operands lie farther away than there.
double FarSeconds(const Graph& graph, const Node& node, const Workload& work,
                  const std::vector<double>& distances, const Speeds::Time& time,
                  const Speeds& speeds) {
  if (work.bytes <= 0) return 0;
  // Run again and again, it found its operands in a working set of their own bytes; what an update
  // writes is among its inputs.
  double own = work.bytes;
  if (node.op->kind == OpKind::kUpdate) {
    own = 0;
    for (const ValueId v : graph.in(node)) own += static_cast<double>(graph.values[v].spec.bytes());
  }
  const double near = 1 / speeds.Bandwidth(own), farthest = 1 / speeds.SlowestBandwidth();
  double seconds = 0, share = 0, left = work.bytes;  // a look-up does not read all of its inputs
  size_t i = 0;
  for (const auto ids : {graph.in(node), graph.out(node)}) {
    // An update's outputs are inputs that it wrote: near by then.
    if (i > 0 && node.op->kind == OpKind::kUpdate) break;
    for (const ValueId v : ids) {
      const double distance = distances[i++];
      const double bytes = std::min(left, static_cast<double>(graph.values[v].spec.bytes()));
      left -= bytes;
      if (distance <= work.bytes) continue;
      const double longer = std::max(0.0, 1 / speeds.Bandwidth(distance) - near);
      seconds += bytes * longer;
      share += bytes * (farthest > near ? longer / (farthest - near) : 1);
    }
  }
  if (time.far_seconds <= 0) return seconds;
  return std::max(0.0, time.far_seconds - time.seconds) * std::min(1.0, share / own);
}

double FloorOf(const Workload& work, const Speeds& speeds) {
  double seconds = 0;
  const double rate = speeds.BestMatmulRate(work.dtype);
  if (work.contraction() && rate > 0) seconds = work.flops / rate;
  if (work.least_bytes > 0)
    seconds = std::max(seconds, work.least_bytes / speeds.BestBandwidth(work.least_bytes));
  return seconds / kFloorHeadroom;
}

}  // namespace

TimePrediction PredictTime(const Graph& graph, const Speeds& speeds) {
  TimePrediction result;
  std::vector<Workload> works;
  works.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) works.push_back(WorkloadOf(graph, node));
  Distances distances(graph);
  distances.Run(works);
  const Calibration& calibration = speeds.calibration();
  for (size_t n = 0; n < works.size(); ++n) {
    const Node& node = graph.nodes[n];
    const Speeds::Time time = speeds.TimeOf(works[n]);
    if (time.by != Speeds::kByOp) {
      result.unmeasured.insert(works[n].op);
      ++result.unmeasured_nodes;
    }
    PredictedTime t;
    t.floor = FloorOf(works[n], speeds);
    t.seconds = time.seconds + calibration.record_seconds;
    if (node.phase == Phase::kBackward) t.seconds += calibration.gradient_seconds;
    t.seconds +=
        FarSeconds(graph, node, works[n], distances.of(static_cast<NodeId>(n)), time, speeds);
    t.seconds = std::max(t.seconds, t.floor);
    for (PredictedTime* sum : {&result.total, &result.phase[static_cast<size_t>(node.phase)]}) {
      sum->seconds += t.seconds;
      sum->floor += t.floor;
    }
    result.nodes.push_back(t);
  }
  return result;
}

}  // namespace tally
