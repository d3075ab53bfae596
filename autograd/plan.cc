#include "tally/autograd/plan.h"

#include "absl/strings/str_cat.h"
#include "tally/tensor/check.h"

namespace tally {

std::vector<bool> PinnedStorages(const Graph& graph) {
  std::vector<bool> pinned(graph.storages.size(), true);
  for (const StorageEvent& e : graph.events) {
    if (e.kind == StorageEvent::kFree) pinned[e.storage] = false;
  }
  for (ValueId v : graph.outputs) pinned[graph.values[v].storage] = true;
  return pinned;
}

std::vector<int64_t> ScratchBytes(const Graph& graph) {
  std::vector<bool> has_value(graph.storages.size(), false);
  for (const Value& value : graph.values) has_value[value.storage] = true;
  std::vector<int64_t> scratch(graph.nodes.size(), 0);
  for (const StorageEvent& e : graph.events) {
    const StorageRecord& s = graph.storages[e.storage];
    if (e.kind != StorageEvent::kAllocate || s.origin != Origin::kScratch) continue;
    if (!has_value[e.storage] && e.at < static_cast<NodeId>(scratch.size())) {
      scratch[e.at] += s.bytes;
    }
  }
  return scratch;
}

namespace {

class PlanChecker {
 public:
  PlanChecker(const Graph& graph, const Plan& plan)
      : g_(graph), plan_(plan), pinned_(PinnedStorages(graph)) {}

  absl::Status Check() {
    live_.assign(g_.storages.size(), false);
    version_.assign(g_.storages.size(), 0);
    ran_.assign(g_.nodes.size(), false);
    made_.assign(g_.values.size(), 0);
    incarnation_.assign(g_.storages.size(), 1);
    NoteVersions();
    for (size_t s = 0; s < live_.size(); ++s) live_[s] = g_.storages[s].resident;
    for (step_ = 0; step_ < plan_.steps.size(); ++step_) {
      const PlanStep& step = plan_.steps[step_];
      TALLY_RETURN_IF_ERROR(step.kind == PlanStep::kRun ? Run(step.id) : Free(step.id));
    }
    for (size_t n = 0; n < ran_.size(); ++n) {
      if (!ran_[n] && g_.nodes[n].phase != Phase::kRecompute) {
        return Fault(absl::StrCat("node ", n, " (", g_.nodes[n].op->name, ") never runs"));
      }
    }
    return CheckEnd();
  }

 private:
  absl::Status Fault(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", plan_.name, ": step ", step_, ": ", what));
  }

  // The results are there, as they were recorded, and nothing else.
  absl::Status CheckEnd() const {
    for (size_t s = 0; s < live_.size(); ++s) {
      if (!live_[s]) continue;
      if (!pinned_[s]) return Fault(absl::StrCat("the plan ends and never frees storage ", s));
      if (version_[s] == last_version_[s]) continue;
      return Fault(absl::StrCat("the plan ends with storage ", s, " at version ", version_[s],
                                "; the record left it at version ", last_version_[s]));
    }
    return absl::OkStatus();
  }

  // The version of its storage that each operand had when it was recorded.
  void NoteVersions() {
    seen_.assign(g_.ids.size(), 0);
    last_version_.assign(g_.storages.size(), 0);
    std::vector<uint32_t>& now = last_version_;
    for (const Node& node : g_.nodes) {
      for (size_t i = 0; i < node.num_in; ++i) {
        const size_t at = node.first + i;
        seen_[at] = now[g_.values[g_.ids[at]].storage];
      }
      for (ValueId v : g_.out(node)) now[g_.values[v].storage] = g_.values[v].version;
    }
  }

  absl::Status Run(NodeId n) {
    if (n < 0 || n >= static_cast<NodeId>(g_.nodes.size()))
      return Fault(absl::StrCat("node ", n, " does not exist"));
    const Node& node = g_.nodes[n];
    const std::string at = absl::StrCat("node ", n, " (", node.op->name, ") ");
    if (ran_[n] && (node.phase != Phase::kForward || node.op->kind == OpKind::kUpdate)) {
      return Fault(at + "runs again; only forward nodes that update nothing may");
    }
    if (!ran_[n]) {
      if (n < newest_) return Fault(at + "runs out of order");
      newest_ = n;
    }
    for (size_t i = 0; i < node.num_in; ++i) {
      TALLY_RETURN_IF_ERROR(Read(at, g_.ids[node.first + i], seen_[node.first + i]));
    }
    for (ValueId v : g_.out(node)) {
      const Value& value = g_.values[v];
      if (!live_[value.storage]) {
        live_[value.storage] = true;
        ++incarnation_[value.storage];
      }
      version_[value.storage] = value.version;
      made_[v] = incarnation_[value.storage];
    }
    ran_[n] = true;
    return absl::OkStatus();
  }

  absl::Status Read(const std::string& at, ValueId v, uint32_t version) {
    const Value& value = g_.values[v];
    const StorageId s = value.storage;
    if (value.producer == kNone) {
      if (!live_[s] && incarnation_[s] == 1 && !g_.storages[s].resident) live_[s] = true;
      made_[v] = 1;
    }
    if (!live_[s])
      return Fault(absl::StrCat(at, "reads %", v, ", whose storage ", s, " is not live"));
    // Other views of what an update wrote have no node of their own; the version tells.
    const bool rewritten =
        value.producer != kNone && g_.nodes[value.producer].op->kind == OpKind::kUpdate;
    if (made_[v] != incarnation_[s] && !rewritten) {
      return Fault(absl::StrCat(at, "reads %", v, ", which was not computed since storage ", s,
                                " was allocated"));
    }
    if (version_[s] != version) {
      return Fault(absl::StrCat(at, "reads %", v, " at version ", version_[s], " of storage ", s,
                                "; it was recorded at version ", version));
    }
    return absl::OkStatus();
  }

  absl::Status Free(StorageId s) {
    if (s < 0 || s >= static_cast<StorageId>(live_.size()))
      return Fault(absl::StrCat("storage ", s, " does not exist"));
    if (!live_[s]) return Fault(absl::StrCat("frees storage ", s, ", which is not live"));
    if (pinned_[s])
      return Fault(absl::StrCat("frees storage ", s, ", which holds a result or outlives the run"));
    live_[s] = false;
    version_[s] = 0;
    ++incarnation_[s];
    return absl::OkStatus();
  }

  const Graph& g_;
  const Plan& plan_;
  const std::vector<bool> pinned_;
  size_t step_ = 0;
  NodeId newest_ = 0;
  std::vector<bool> live_, ran_;
  std::vector<uint32_t> version_;       // content of each storage now
  std::vector<uint32_t> incarnation_;   // changes when a storage is allocated or freed
  std::vector<uint32_t> seen_;          // per entry of Graph::ids: the recorded version
  std::vector<uint32_t> last_version_;  // of each storage at the end of the record
  std::vector<uint32_t> made_;          // per value: the incarnation it was computed in
};

}  // namespace

absl::Status ValidatePlan(const Graph& graph, const Plan& plan) {
  return PlanChecker(graph, plan).Check();
}

}  // namespace tally
