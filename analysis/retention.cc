#include "tally/analysis/retention.h"

#include <algorithm>
#include <utility>

namespace tally {

std::vector<NodeId> RunList::Nodes() const {
  std::vector<NodeId> nodes;
  nodes.reserve(runs.size());
  for (const RunLife& run : runs) nodes.push_back(run.node);
  return nodes;
}

Retention::Retention(const PlanProblem& problem, const NodeCosts& costs)
    : p_(problem), costs_(costs) {}

// Marks what has to run again before node n can, before the first run of t.
bool Retention::Require(NodeId n, NodeId t) {
  const Graph& g = p_.graph();
  todo_.assign(1, n);
  while (!todo_.empty()) {
    const NodeId now = todo_.back();
    todo_.pop_back();
    for (ValueId v : g.in(g.nodes[now])) {
      const Value& value = g.values[v];
      const StorageId s = value.storage;
      if (!p_.droppable(s) || (lives_[s] && made_in_[v] == life_[s])) continue;
      // Of a view the base comes first; it asks for the maker where the storage is gone.
      const NodeId producer = value.producer;
      if (marked_[producer] == t) continue;
      if (g.nodes[producer].phase != Phase::kForward) return false;
      if (g.nodes[producer].op->kind == OpKind::kCompute) {
        if (p_.expires(producer) < t) return false;
        // All that it makes is made anew, so none of it may be held by a view of backward.
        // A result that outlives the step is written over in place.
        for (StorageId made : p_.makes(producer)) {
          if (p_.droppable(made) && p_.StaysAfter(made, t - 1)) return false;
        }
      }
      marked_[producer] = t;
      again_.push_back(producer);
      todo_.push_back(producer);
    }
  }
  return true;
}

bool Retention::MakeRuns(RunList& list) {
  const Graph& g = p_.graph();
  std::stable_sort(gaps_.begin(), gaps_.end(),
                   [](const Gap& a, const Gap& b) { return a.from < b.from; });
  lives_.assign(p_.num_storages(), 0);
  life_.assign(p_.num_storages(), 0);
  made_in_.assign(g.values.size(), 0);
  marked_.assign(p_.num_nodes(), kNone);
  gap_until_.assign(p_.num_storages(), 0);
  list.runs.reserve(p_.num_nodes() + p_.num_nodes() / 4);
  size_t next_gap = 0;
  const auto run = [&](NodeId n, NodeId t) {
    list.runs.push_back({n, t, n != t});
    for (StorageId s : p_.makes(n)) lives_[s] = 1, ++life_[s];
    for (ValueId v : g.out(g.nodes[n])) made_in_[v] = life_[g.values[v].storage];
  };
  for (NodeId t = 0; t < p_.num_nodes(); ++t) {
    again_.clear();
    if (!Require(t, t)) return false;
    // A node that made something again for one reader made anew what others read through views.
    for (size_t checked = 0; checked < again_.size();) {
      const size_t end = again_.size();
      for (size_t i = checked; i < end; ++i) {
        for (StorageId s : p_.makes(again_[i])) lives_[s] = 0;
      }
      for (size_t i = 0; i < end; ++i) {
        if (!Require(again_[i], t)) return false;
      }
      if (!Require(t, t)) return false;
      checked = end;
    }
    std::sort(again_.begin(), again_.end());
    for (NodeId n : again_) run(n, t);
    run(t, t);
    while (next_gap < gaps_.size() && gaps_[next_gap].from <= t) {
      const Gap& gap = gaps_[next_gap++];
      gap_until_[gap.storage] = std::max(gap_until_[gap.storage], gap.until);
      if (gap.until > t && p_.droppable(gap.storage) && !p_.StaysAfter(gap.storage, t))
        lives_[gap.storage] = 0;
    }
    const auto close = [&](NodeId n) {
      for (StorageId s : p_.touches(n)) {
        if (gap_until_[s] > t && p_.droppable(s) && !p_.StaysAfter(s, t)) lives_[s] = 0;
      }
    };
    for (NodeId n : again_) close(n);
    close(t);
  }
  return true;
}

namespace {

// Lives and peak of `list.runs`. Backward over the runs, as PlanFromRuns: the first use met is the
// last of a life, and a run that makes the storage begins it.
class Pricer {
 public:
  Pricer(const PlanProblem& problem, const NodeCosts& costs, RunList& list)
      : p_(problem), costs_(costs), list_(list), count_(static_cast<int32_t>(list.runs.size())) {}

  void Price() {
    FindLives();
    FindPeak();
  }

 private:
  static constexpr int32_t kNever = -2;

  bool Pinned(StorageId s) const {
    const absl::Span<const PlanProblem::Stay> stays = p_.stays(s);
    return !stays.empty() && stays.back().until == p_.num_nodes();
  }

  void FindLives() {
    std::vector<int32_t> end(p_.num_storages(), kNever);  // of the life that is being followed
    std::vector<int32_t> first_use(p_.num_storages(), kNone);
    for (int32_t i = count_; i-- > 0;) {
      RunLife& run = list_.runs[i];
      if (run.again) list_.extra_cost += costs_.of[run.node];
      for (StorageId s : p_.touches(run.node)) {
        first_use[s] = i;
        if (end[s] == kNever) end[s] = Pinned(s) ? count_ : i;
      }
      for (StorageId s : p_.makes(run.node)) {
        if (run.again && Pinned(s)) continue;  // it lives since its first run
        list_.lives.push_back({s, i, end[s]});
        end[s] = kNever;
      }
    }
    for (StorageId s = 0; s < p_.num_storages(); ++s) {
      if (p_.graph().storages[s].resident) {
        list_.lives.push_back({s, kNone, Pinned(s) ? count_ : std::max(end[s], kNone)});
      } else if (end[s] != kNever) {  // an input that is bound at its first read
        list_.lives.push_back({s, first_use[s], end[s]});
      }
    }
    std::stable_sort(list_.lives.begin(), list_.lives.end(),
                     [](const StorageLife& a, const StorageLife& b) { return a.begin < b.begin; });
  }

  void FindPeak() {
    // change[i + 1]: what comes with run i. What ends with run i is gone at the next.
    std::vector<int64_t> change(count_ + 2, 0);
    for (const StorageLife& life : list_.lives) {
      change[life.begin + 1] += p_.bytes(life.storage);
      if (life.end < count_) change[life.end + 2] -= p_.bytes(life.storage);
    }
    int64_t live = change[0];
    list_.peak = live;
    for (int32_t i = 0; i < count_; ++i) {
      live += change[i + 1];
      RunLife& run = list_.runs[i];
      run.live = live + p_.scratch(run.node);
      if (run.live <= list_.peak) continue;
      list_.peak = run.live;
      list_.peak_run = i;
    }
  }

  const PlanProblem& p_;
  const NodeCosts& costs_;
  RunList& list_;
  const int32_t count_;
};

}  // namespace

RunList Retention::Make() {
  RunList list;
  list.valid = MakeRuns(list);
  if (list.valid) Pricer(p_, costs_, list).Price();
  return list;
}

RunList Retention::MakeHolding() {
  const RunList list = Make();
  if (!list.valid) return list;
  std::vector<std::vector<NodeId>> made_again(p_.num_storages());  // before which nodes
  for (const StorageLife& life : list.lives) {
    if (life.begin >= 0 && list.runs[life.begin].again)
      made_again[life.storage].push_back(list.runs[life.begin].before);
  }
  for (Gap& gap : gaps_) {
    const std::vector<NodeId>& made = made_again[gap.storage];
    const auto first = std::upper_bound(made.begin(), made.end(), gap.from);
    if (first != made.end()) gap.until = std::min(gap.until, *first);
  }
  return Make();
}

RunList PriceRuns(const PlanProblem& problem, const NodeCosts& costs,
                  const std::vector<NodeId>& runs) {
  RunList list;
  list.valid = true;
  std::vector<bool> ran(problem.num_nodes(), false);
  for (NodeId n : runs) {
    list.runs.push_back({n, n, ran[n]});
    ran[n] = true;
  }
  NodeId before = problem.num_nodes();
  for (size_t i = list.runs.size(); i-- > 0;) {
    RunLife& run = list.runs[i];
    if (run.again)
      run.before = before;
    else
      before = run.node;
  }
  Pricer(problem, costs, list).Price();
  return list;
}

std::vector<Gap> GapsOf(const PlanProblem& problem, const NodeCosts& costs, const Plan& plan) {
  const RunList list = PriceRuns(problem, costs, RunsOf(plan));
  std::vector<int32_t> ended(problem.num_storages(), kNone);
  std::vector<Gap> gaps;
  for (const StorageLife& life : list.lives) {
    const StorageId s = life.storage;
    if (!problem.droppable(s)) continue;
    if (ended[s] != kNone) {
      const NodeId from = list.runs[ended[s]].before, until = list.runs[life.begin].before;
      if (from < until) gaps.push_back({s, from, until});
    }
    ended[s] = life.end;
  }
  return gaps;
}

}  // namespace tally
