#include "tally/analysis/plan_problem.h"

#include <algorithm>
#include <utility>

#include "tally/analysis/live_steps.h"
#include "tally/analysis/simulate.h"
#include "tally/autograd/plan.h"

namespace tally {
namespace {

void SortUnique(std::vector<int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

std::vector<std::vector<int32_t>> StoragesOfNodes(const Graph& graph, bool in, bool out,
                                                  bool compute_only) {
  std::vector<std::vector<int32_t>> lists(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (compute_only && node.op->kind != OpKind::kCompute) continue;
    if (in) {
      for (ValueId v : graph.in(node)) lists[n].push_back(graph.values[v].storage);
    }
    if (out) {
      for (ValueId v : graph.out(node)) lists[n].push_back(graph.values[v].storage);
    }
    SortUnique(lists[n]);
  }
  return lists;
}

std::vector<std::vector<int32_t>> Users(const Graph& graph) {
  std::vector<std::vector<int32_t>> users(graph.storages.size());
  const auto lists = StoragesOfNodes(graph, true, true, false);
  for (size_t n = 0; n < lists.size(); ++n) {
    for (StorageId s : lists[n]) users[s].push_back(static_cast<NodeId>(n));
  }
  return users;
}

}  // namespace

IdLists::IdLists(const std::vector<std::vector<int32_t>>& lists) {
  start_.reserve(lists.size() + 1);
  start_.push_back(0);
  for (const std::vector<int32_t>& list : lists) {
    ids_.insert(ids_.end(), list.begin(), list.end());
    start_.push_back(static_cast<uint32_t>(ids_.size()));
  }
}

PlanProblem::PlanProblem(const Graph& graph)
    : graph_(graph),
      pinned_(PinnedStorages(graph)),
      reads_(StoragesOfNodes(graph, true, false, false)),
      makes_(StoragesOfNodes(graph, false, true, true)),
      touches_(StoragesOfNodes(graph, true, true, false)),
      users_(Users(graph)),
      scratch_(graph.nodes.size(), 0) {
  for (const LiveStep& step : PlannedSteps(graph, PlanNone(graph))) {
    if (step.kind == LiveStep::kAt && step.id < num_nodes()) {
      scratch_[step.id] = std::max(scratch_[step.id], step.scratch);
    }
  }
  for (const Node& node : graph.nodes) has_[static_cast<size_t>(node.phase)] = true;
  FindMakers();
  FindExpiries();
  FindStays();
}

void PlanProblem::FindMakers() {
  maker_.assign(num_storages(), kNone);
  std::vector<bool> plain(num_storages(), true);  // written by one compute node, nothing else
  for (NodeId n = 0; n < num_nodes(); ++n) {
    const Node& node = graph_.nodes[n];
    if (node.op->kind == OpKind::kUpdate) {
      for (ValueId v : graph_.out(node)) plain[graph_.values[v].storage] = false;
    }
    for (StorageId s : makes(n)) {
      if (maker_[s] != kNone) plain[s] = false;
      maker_[s] = n;
    }
  }
  for (const Value& value : graph_.values) {
    if (value.producer == kNone) plain[value.storage] = false;
  }
  droppable_.assign(num_storages(), false);
  for (NodeId n = 0; n < num_nodes(); ++n) {
    if (graph_.nodes[n].phase != Phase::kForward) continue;
    // Running it again writes all that it makes.
    bool again = true;
    for (StorageId s : makes(n)) again &= plain[s];
    for (StorageId s : makes(n)) {
      droppable_[s] = again && !pinned_[s] && !graph_.storages[s].resident;
    }
  }
}

void PlanProblem::FindExpiries() {
  expires_.assign(num_nodes(), num_nodes());
  std::vector<NodeId> next_write(num_storages(), num_nodes());
  for (NodeId n = num_nodes(); n-- > 0;) {
    for (StorageId s : reads(n)) expires_[n] = std::min(expires_[n], next_write[s]);
    const Node& node = graph_.nodes[n];
    if (node.op->kind != OpKind::kUpdate) continue;
    for (ValueId v : graph_.out(node)) next_write[graph_.values[v].storage] = n;
  }
}

void PlanProblem::FindStays() {
  stays_.assign(num_storages(), {});
  const NodeId end = num_nodes();
  for (StorageId s = 0; s < num_storages(); ++s) {
    const absl::Span<const NodeId> used = users(s);
    if (droppable(s)) {
      const NodeId last = expires(maker(s));
      if (last < used.back()) stays_[s].push_back({last, used.back()});
      continue;
    }
    const bool resident = graph_.storages[s].resident;
    if (used.empty() && !(resident && pinned_[s])) continue;
    stays_[s].push_back({resident ? 0 : used.front(), pinned_[s] ? end : used.back()});
  }
  // What a view shows that no plan may make again stays until the view's last use.
  std::vector<NodeId> last_use(graph_.values.size(), kNone);
  for (NodeId n = end; n-- > 0;) {
    const Node& node = graph_.nodes[n];
    for (ValueId v : graph_.in(node)) last_use[v] = std::max(last_use[v], n);
    if (node.op->kind != OpKind::kView) continue;
    NodeId last = n;
    for (ValueId v : graph_.out(node)) last = std::max(last, last_use[v]);
    const ValueId base = graph_.in(node)[0];
    last_use[base] = std::max(last_use[base], last);
    const StorageId s = graph_.values[base].storage;
    if (droppable(s) && node.phase != Phase::kForward && last > n) stays_[s].push_back({n, last});
  }
  for (std::vector<Stay>& stays : stays_) {
    std::sort(stays.begin(), stays.end(),
              [](const Stay& a, const Stay& b) { return a.from < b.from; });
    size_t kept = 0;
    for (size_t i = 0; i < stays.size(); ++i) {
      if (kept > 0 && stays[i].from <= stays[kept - 1].until) {
        stays[kept - 1].until = std::max(stays[kept - 1].until, stays[i].until);
      } else {
        stays[kept++] = stays[i];
      }
    }
    stays.resize(kept);
  }
}

bool PlanProblem::StaysAfter(StorageId s, NodeId t) const {
  for (const Stay& stay : stays_[s]) {
    if (stay.from <= t && t < stay.until) return true;
  }
  return false;
}

std::string PlanProblem::NothingToDo() const {
  if (has(Phase::kRecompute)) return "the record is checkpointed already";
  if (!has(Phase::kBackward)) return "no backward was recorded: nothing is kept";
  return "";
}

}  // namespace tally
