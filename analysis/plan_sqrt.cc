#include "tally/analysis/plan_sqrt.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/simulate.h"

namespace tally {
namespace {

// "h.11" -> "h."; "layers" -> "layers" and false.
bool NumberedStem(const std::string& name, std::string* stem) {
  size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  *stem = name.substr(0, end);
  return end < name.size();
}

std::vector<int> Depths(const Graph& graph) {
  std::vector<int> depth(graph.scopes.size(), 0);
  for (size_t s = 1; s < graph.scopes.size(); ++s) depth[s] = depth[graph.scopes[s].parent] + 1;
  return depth;
}

// Scopes that hold a forward node, themselves or below them.
std::vector<bool> ForwardScopes(const Graph& graph) {
  std::vector<bool> used(graph.scopes.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kForward) used[node.scope] = true;
  }
  for (size_t s = graph.scopes.size(); s-- > 1;) {
    if (used[s]) used[graph.scopes[s].parent] = true;
  }
  return used;
}

class Segmenter {
 public:
  Segmenter(const Graph& graph, const std::vector<ScopeId>& blocks, int length, bool recompute_last)
      : g_(graph), blocks_(blocks), length_(length), recompute_last_(recompute_last) {}

  Plan Make() {
    AssignSegments();
    MarkDropped();
    Plan plan = PlanFromRuns(g_, Runs());
    for (size_t first = 0; first < blocks_.size(); first += length_) {
      PlanSegment segment;
      const size_t end = std::min(blocks_.size(), first + length_);
      segment.blocks.assign(blocks_.begin() + first, blocks_.begin() + end);
      segment.recomputed = recompute_last_ || end < blocks_.size();
      plan.segments.push_back(std::move(segment));
    }
    return plan;
  }

 private:
  NodeId NumNodes() const { return static_cast<NodeId>(g_.nodes.size()); }

  // Segment of each forward node in a segment that is recomputed. Micro-batches go through the
  // blocks again: each pass has its own segments.
  void AssignSegments() {
    std::vector<int> block(g_.scopes.size(), kNone);
    for (size_t i = 0; i < blocks_.size(); ++i) block[blocks_[i]] = static_cast<int>(i);
    for (size_t s = 1; s < g_.scopes.size(); ++s) {
      if (block[s] == kNone) block[s] = block[g_.scopes[s].parent];
    }
    const int count = static_cast<int>((blocks_.size() + length_ - 1) / length_);
    segment_.assign(g_.nodes.size(), kNone);
    int pass = 0, last = kNone;
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward || block[node.scope] == kNone) continue;
      const int segment = block[node.scope] / length_;
      if (segment < last) ++pass;
      last = segment;
      if (segment < count - 1 || recompute_last_) segment_[n] = pass * count + segment;
    }
    num_segments_ = (pass + 1) * count;
  }

  // A value is dropped after forward when only its segment and gradients read it; its node makes it
  // again, and what else it makes too: an output that is kept is then written anew, which a view of
  // it would not survive.
  void MarkDropped() {
    keep_ = PinnedStorages(g_);
    std::vector<bool> once = keep_;                       // per storage: not to be written again
    std::vector<int> segment(g_.storages.size(), kNone);  // that makes it
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      for (ValueId v : g_.out(node)) {
        const StorageId s = g_.values[v].storage;
        if (node.op->kind == OpKind::kCompute) segment[s] = segment_[n];
        if (node.op->kind == OpKind::kView) once[s] = true;
        if (node.op->kind == OpKind::kUpdate) keep_[s] = once[s] = true;
      }
    }
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase == Phase::kBackward || node.phase == Phase::kOptimizer) continue;
      for (ValueId v : g_.in(node)) {
        const StorageId s = g_.values[v].storage;
        if (segment[s] != segment_[n]) keep_[s] = true;
      }
    }
    dropped_.assign(g_.nodes.size(), false);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (segment_[n] == kNone || node.op->kind == OpKind::kUpdate) continue;
      bool drop = false, may = true;
      for (ValueId v : g_.out(node)) {
        const StorageId s = g_.values[v].storage;
        if (segment[s] != segment_[n]) may = false;
        if (keep_[s] && once[s]) may = false;
        drop |= !keep_[s];
      }
      dropped_[n] = drop && may;
      if (dropped_[n]) continue;
      for (ValueId v : g_.out(node)) keep_[g_.values[v].storage] = true;
    }
    // A view goes with its base.
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (!dropped_[n] || node.op->kind != OpKind::kView) continue;
      const NodeId base = g_.values[g_.in(node)[0]].producer;
      dropped_[n] = base != kNone && dropped_[base];
    }
  }

  bool Dropped(ValueId v) const {
    const NodeId producer = g_.values[v].producer;
    return producer != kNone && dropped_[producer] && !keep_[g_.values[v].storage];
  }

  // What gradients read of each segment, and all that it takes to make it again.
  std::vector<std::vector<NodeId>> Reruns() const {
    std::vector<bool> needed(g_.nodes.size(), false);
    for (NodeId n = NumNodes(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      const bool reads =
          needed[n] || node.phase == Phase::kBackward || node.phase == Phase::kOptimizer;
      if (!reads) continue;
      for (ValueId v : g_.in(node)) {
        if (Dropped(v)) needed[g_.values[v].producer] = true;
      }
    }
    std::vector<std::vector<NodeId>> reruns(num_segments_);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      if (needed[n]) reruns[segment_[n]].push_back(n);
    }
    return reruns;
  }

  std::vector<NodeId> Runs() const {
    std::vector<std::vector<NodeId>> reruns = Reruns();
    std::vector<NodeId> runs;
    runs.reserve(g_.nodes.size() * 2);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward) {
        for (ValueId v : g_.in(node)) {
          if (!Dropped(v)) continue;
          std::vector<NodeId>& rerun = reruns[segment_[g_.values[v].producer]];
          runs.insert(runs.end(), rerun.begin(), rerun.end());
          rerun.clear();
        }
      }
      runs.push_back(n);
    }
    return runs;
  }

  const Graph& g_;
  const std::vector<ScopeId>& blocks_;
  const int length_;
  const bool recompute_last_;
  int num_segments_ = 0;
  std::vector<int> segment_;   // per node; kNone: kept
  std::vector<bool> keep_;     // per storage: stays until its last use
  std::vector<bool> dropped_;  // per node: runs again if what it makes is needed
};

Plan Nothing(const Graph& graph, std::string note) {
  Plan plan = PlanNone(graph);
  plan.note = std::move(note);
  return plan;
}

}  // namespace

std::vector<ScopeId> FindBlocks(const Graph& graph) {
  const std::vector<int> depth = Depths(graph);
  const std::vector<bool> used = ForwardScopes(graph);
  std::map<std::pair<ScopeId, std::string>, std::vector<ScopeId>> groups;
  for (size_t s = 1; s < graph.scopes.size(); ++s) {
    std::string stem;
    if (!used[s] || !NumberedStem(graph.name(graph.scopes[s].name), &stem)) continue;
    groups[{graph.scopes[s].parent, stem}].push_back(static_cast<ScopeId>(s));
  }
  const std::vector<ScopeId>* best = nullptr;
  for (const auto& [key, scopes] : groups) {
    if (scopes.size() < 2) continue;
    const auto rank = [&](const std::vector<ScopeId>& g) {
      return std::make_pair(-depth[g[0]], g.size());
    };
    if (best == nullptr || rank(scopes) > rank(*best)) best = &scopes;
  }
  if (best == nullptr) return {};
  return *best;
}

Plan PlanSegments(const Graph& graph, int length, bool recompute_last) {
  TALLY_CHECK(length >= 1) << "segments of " << length << " blocks";
  const std::vector<ScopeId> blocks = FindBlocks(graph);
  if (blocks.empty()) return Nothing(graph, "no repeated blocks were recorded");
  bool backward = false;
  for (const Node& node : graph.nodes) {
    backward |= node.phase == Phase::kBackward;
    if (node.phase == Phase::kRecompute)
      return Nothing(graph, "the record is checkpointed already");
  }
  if (!backward) return Nothing(graph, "no backward was recorded: nothing is kept");
  Plan plan = Segmenter(graph, blocks, length, recompute_last).Make();
  plan.name = absl::StrCat("uniform:", length);
  return plan;
}

Plan PlanSqrt(const Graph& graph) {
  const int64_t blocks = static_cast<int64_t>(FindBlocks(graph).size());
  int length = 1;
  while (int64_t{length} * length < blocks) ++length;
  Plan plan = PlanSegments(graph, length, /*recompute_last=*/false);
  plan.name = "sqrt";
  return plan;
}

}  // namespace tally
