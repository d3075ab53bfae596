#include "tally/analysis/floor.h"

#include <algorithm>
#include <vector>

namespace tally {
namespace {

constexpr int64_t kMostSteps = int64_t{1} << 26;

// A lower bound of the peak, with the run that forces it.
struct Forced {
  int64_t bytes = 0;
  NodeId node = kNone, before = kNone;
};

const Forced& Greater(const Forced& a, const Forced& b) { return b.bytes > a.bytes ? b : a; }
const Forced& Less(const Forced& a, const Forced& b) { return b.bytes < a.bytes ? b : a; }

class FloorFinder {
 public:
  explicit FloorFinder(const PlanProblem& problem) : p_(problem) {
    // What stays while t runs, and what stays between t-1 and t.
    const NodeId n = p_.num_nodes();
    while_.assign(n + 1, 0);
    across_.assign(n + 1, 0);
    for (StorageId s = 0; s < p_.num_storages(); ++s) {
      for (const PlanProblem::Stay& stay : p_.stays(s)) {
        const NodeId until = std::min(stay.until, n - 1);
        if (n == 0 || stay.from > until) continue;
        while_[stay.from] += p_.bytes(s);
        while_[until + 1] -= p_.bytes(s);
        // Residents live before the first node too.
        const NodeId from = p_.graph().storages[s].resident ? 0 : stay.from + 1;
        if (from > until) continue;
        across_[from] += p_.bytes(s);
        across_[until + 1] -= p_.bytes(s);
      }
    }
    for (NodeId t = 1; t <= n; ++t) {
      while_[t] += while_[t - 1];
      across_[t] += across_[t - 1];
    }
    needed_.assign(n, true);
    std::vector<bool> read(p_.graph().values.size(), false);
    for (NodeId t = n; t-- > 0;) {
      const Node& node = p_.graph().nodes[t];
      if (node.phase == Phase::kRecompute) {
        needed_[t] = false;
        for (ValueId v : p_.graph().out(node)) needed_[t] = needed_[t] || read[v];
      }
      if (!needed_[t]) continue;
      for (ValueId v : p_.graph().in(node)) read[v] = true;
    }
  }

  // Operands, outputs and scratch of t beside what stays.
  int64_t WorkingSet(NodeId t) const {
    int64_t bytes = while_[t] + p_.scratch(t);
    for (StorageId s : p_.touches(t)) {
      if (!StaysWhile(s, t)) bytes += p_.bytes(s);
    }
    return bytes;
  }

  PeakFloor Find() const {
    Forced most = AtStart();
    for (NodeId t = 0; t < p_.num_nodes(); ++t) {
      if (needed_[t]) most = Greater(most, {WorkingSet(t), t, kNone});
    }
    int64_t values = 0;
    for (StorageId s = 0; s < p_.num_storages(); ++s) values += p_.droppable(s);
    if (values * p_.num_nodes() <= kMostSteps) most = Greater(most, Following());
    PeakFloor floor;
    floor.bytes = most.bytes;
    floor.node = most.node;
    floor.before = most.before;
    floor.beside = most.bytes;
    if (most.node != kNone) {
      for (StorageId s : p_.touches(most.node)) floor.operands += p_.bytes(s);
      floor.scratch = p_.scratch(most.node);
      floor.beside -= floor.operands + floor.scratch;
    }
    return floor;
  }

 private:
  bool StaysWhile(StorageId s, NodeId t) const {
    for (const PlanProblem::Stay& stay : p_.stays(s)) {
      if (stay.from <= t && t <= stay.until) return true;
    }
    return false;
  }

  Forced AtStart() const {
    Forced start;
    for (StorageId s = 0; s < p_.num_storages(); ++s) {
      if (p_.graph().storages[s].resident) start.bytes += p_.bytes(s);
    }
    return start;
  }

  // Running n again between the first runs of t-1 and t. What stays across the moment need not be
  // all that stays while t runs.
  int64_t Again(NodeId n, NodeId t) const {
    int64_t bytes = across_[t] + p_.scratch(n);
    for (StorageId s : p_.touches(n)) {
      if (!StaysAcross(s, t)) bytes += p_.bytes(s);
    }
    return bytes;
  }
  bool StaysAcross(StorageId s, NodeId t) const {
    for (const PlanProblem::Stay& stay : p_.stays(s)) {
      const NodeId from = p_.graph().storages[s].resident ? 0 : stay.from + 1;
      if (from <= t && t <= stay.until) return true;
    }
    return false;
  }

  Forced Following() const {
    Forced most;
    std::vector<StorageId> made;  // droppable, in order of their makers
    std::vector<Forced> live(p_.num_storages());
    // Since when a value can be of use: up to its last use, direct or through what is made of it.
    std::vector<NodeId> useful(p_.num_storages(), kNone);
    for (NodeId n = p_.num_nodes(); n-- > 0;) {
      NodeId last = n;
      for (StorageId s : p_.makes(n)) {
        if (p_.droppable(s)) last = std::max(last, useful[s]);
      }
      for (StorageId s : p_.reads(n)) useful[s] = std::max(useful[s], last);
    }
    for (NodeId t = 0; t < p_.num_nodes(); ++t) {
      const int64_t before = t > 0 ? WorkingSet(t - 1) : 0;
      size_t kept = 0;
      for (StorageId s : made) {
        if (useful[s] < t) continue;
        made[kept++] = s;
        Step(s, t, before, live);
      }
      made.resize(kept);
      if (needed_[t]) {
        Forced here{WorkingSet(t), t, kNone};
        for (StorageId s : p_.reads(t)) {
          if (p_.droppable(s)) here = Greater(here, live[s]);
        }
        most = Greater(most, here);
      }
      for (StorageId s : p_.makes(t)) {
        if (!p_.droppable(s)) continue;
        live[s] = {WorkingSet(t), t, kNone};
        for (StorageId w : p_.reads(t)) {
          if (p_.droppable(w)) live[s] = Greater(live[s], live[w]);
        }
        made.push_back(s);
      }
    }
    return most;
  }

  // From Live(., t-1), and Live(w, t) of what the maker reads, to Live(s, t).
  void Step(StorageId s, NodeId t, int64_t before, std::vector<Forced>& live) const {
    const absl::Span<const StorageId> touched = p_.touches(t - 1);
    const bool with = std::binary_search(touched.begin(), touched.end(), s) || StaysWhile(s, t - 1);
    const Forced kept = Greater(live[s], {before + (with ? 0 : p_.bytes(s)), t - 1, kNone});
    const NodeId maker = p_.maker(s);
    if (p_.expires(maker) < t || p_.StaysAfter(s, t - 1)) {
      live[s] = kept;
      return;
    }
    Forced again{Again(maker, t), maker, t};
    if (again.bytes < kept.bytes) {
      for (StorageId w : p_.reads(maker)) {
        if (p_.droppable(w)) again = Greater(again, live[w]);
      }
    }
    live[s] = Less(kept, again);
  }

  const PlanProblem& p_;
  std::vector<int64_t> while_, across_;
  std::vector<bool> needed_;  // false: a recompute node whose values nobody reads
};

}  // namespace

PeakFloor FindFloor(const PlanProblem& problem) { return FloorFinder(problem).Find(); }

PeakFloor FindFloor(const Graph& graph) { return FindFloor(PlanProblem(graph)); }

std::vector<int64_t> WorkingSets(const PlanProblem& problem) {
  const FloorFinder finder(problem);
  std::vector<int64_t> sets(problem.num_nodes());
  for (NodeId t = 0; t < problem.num_nodes(); ++t) sets[t] = finder.WorkingSet(t);
  return sets;
}

}  // namespace tally
