#include "tally/analysis/simulate.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tally/analysis/provenance.h"

namespace tally {
namespace {

// A storage from when it comes to be to its free, in steps of the plan.
struct Life {
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  StorageId storage = kNone;
  size_t kept_from = kNever;  // first step at which forward makes or reads it
  size_t last_kept_read = 0;  // last step at which backward or a rerun reads it; 0: never
};

class Simulation {
 public:
  Simulation(const Graph& graph, const Plan& plan)
      : g_(graph),
        plan_(plan),
        scratch_(ScratchBytes(graph)),
        current_(graph.storages.size(), kNone) {}

  PlanPrice Run() {
    price_.name = plan_.name;
    price_.steps = static_cast<int64_t>(plan_.steps.size());
    for (size_t s = 0; s < g_.storages.size(); ++s) {
      if (g_.storages[s].resident) Begin(static_cast<StorageId>(s));
    }
    Peak(0, kNone, 0);
    std::vector<bool> ran(g_.nodes.size(), false);
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      if (step.kind == PlanStep::kFree) {
        End(step.id);
      } else {
        RunNode(step.id, i, ran[step.id]);
        ran[step.id] = true;
      }
    }
    price_.saved_bytes = Saved(nullptr);
    return price_;
  }

  // After Run.
  PlanDetail Detail() const {
    PlanDetail detail;
    std::vector<bool> live(g_.storages.size());
    for (size_t s = 0; s < live.size(); ++s) live[s] = g_.storages[s].resident;
    // Before the first step where nothing ran at the peak, else with that step.
    const size_t steps = price_.peak_node == kNone ? 0 : price_.peak_step + 1;
    for (size_t i = 0; i < steps; ++i) {
      const PlanStep& step = plan_.steps[i];
      if (step.kind == PlanStep::kFree) {
        live[step.id] = false;
        continue;
      }
      for (ValueId v : g_.in(g_.nodes[step.id])) live[g_.values[v].storage] = true;
      for (ValueId v : g_.out(g_.nodes[step.id])) live[g_.values[v].storage] = true;
    }
    for (size_t s = 0; s < live.size(); ++s) {
      if (live[s]) detail.at_peak.push_back(static_cast<StorageId>(s));
    }
    if (price_.peak_node != kNone) detail.scratch_at_peak = scratch_[price_.peak_node];
    Saved(&detail.saved);
    return detail;
  }

 private:
  int64_t& Live(StorageId s) { return live_by_origin_[static_cast<size_t>(g_.storages[s].origin)]; }

  void Begin(StorageId s) {
    current_[s] = static_cast<int32_t>(lives_.size());
    lives_.push_back({s});
    Live(s) += g_.storages[s].bytes;
    live_ += g_.storages[s].bytes;
  }

  void End(StorageId s) {
    current_[s] = kNone;
    Live(s) -= g_.storages[s].bytes;
    live_ -= g_.storages[s].bytes;
  }

  void Peak(size_t step, NodeId node, int64_t scratch) {
    if (live_ + scratch <= price_.peak_bytes) return;
    price_.peak_bytes = live_ + scratch;
    price_.peak_node = node;
    price_.peak_step = step;
    price_.peak_by_origin = live_by_origin_;
    price_.peak_by_origin[static_cast<size_t>(Origin::kScratch)] += scratch;
  }

  void RunNode(NodeId n, size_t step, bool again) {
    const Node& node = g_.nodes[n];
    const bool forward = node.phase == Phase::kForward || node.phase == Phase::kRecompute;
    const bool keeps = again || node.phase != Phase::kForward;
    for (ValueId v : g_.in(node)) {
      const StorageId s = g_.values[v].storage;
      if (current_[s] == kNone) Begin(s);  // an input made during the record
      Life& life = lives_[current_[s]];
      if (forward) life.kept_from = std::min(life.kept_from, step);
      if (keeps && node.phase != Phase::kOptimizer) life.last_kept_read = step;
    }
    for (ValueId v : g_.out(node)) {
      const StorageId s = g_.values[v].storage;
      if (current_[s] == kNone) Begin(s);
      Life& life = lives_[current_[s]];
      if (forward) life.kept_from = std::min(life.kept_from, step);
    }
    Peak(step, n, scratch_[n]);
    if (again && node.op->kind != OpKind::kView) {
      ++price_.extra_nodes;
      price_.recompute += CostOf(g_, node);
    }
  }

  // The most kept at once; with `list` also what that is.
  int64_t Saved(std::vector<StorageId>* list) const {
    const Provenance provenance(g_);
    std::vector<bool> parameter(g_.storages.size(), false);
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (provenance.parameter(static_cast<ValueId>(v)) != kNone)
        parameter[g_.values[v].storage] = true;
    }
    const auto kept_later = [&](const Life& life) {
      return !parameter[life.storage] && life.kept_from < life.last_kept_read;
    };
    std::vector<int64_t> change(plan_.steps.size() + 2, 0);
    for (const Life& life : lives_) {
      if (!kept_later(life)) continue;
      change[life.kept_from] += g_.storages[life.storage].bytes;
      change[life.last_kept_read + 1] -= g_.storages[life.storage].bytes;
    }
    int64_t kept = 0, most = 0;
    size_t most_at = 0;
    for (size_t i = 0; i < change.size(); ++i) {
      kept += change[i];
      if (kept > most) most = kept, most_at = i;
    }
    for (const Life& life : lives_) {
      if (list == nullptr || most == 0 || !kept_later(life)) continue;
      if (life.kept_from <= most_at && life.last_kept_read >= most_at)
        list->push_back(life.storage);
    }
    return most;
  }

  const Graph& g_;
  const Plan& plan_;
  const std::vector<int64_t> scratch_;
  std::vector<int32_t> current_;  // per storage: its life now
  std::vector<Life> lives_;
  std::array<int64_t, kNumOrigins> live_by_origin_{};
  int64_t live_ = 0;
  PlanPrice price_;
};

}  // namespace

absl::StatusOr<PlanPrice> PricePlan(const Graph& graph, const Plan& plan) {
  TALLY_RETURN_IF_ERROR(ValidatePlan(graph, plan));
  return PriceValidPlan(graph, plan);
}

PlanPrice PriceValidPlan(const Graph& graph, const Plan& plan) {
  return Simulation(graph, plan).Run();
}

PlanDetail DetailPlan(const Graph& graph, const Plan& plan) {
  Simulation simulation(graph, plan);
  simulation.Run();
  return simulation.Detail();
}

Plan PlanFromRuns(const Graph& graph, const std::vector<NodeId>& runs) {
  const std::vector<bool> pinned = PinnedStorages(graph);
  // Backward over the runs: the first use met is the last of its life. A run that makes a storage
  // which is not in use before ends the search for that life.
  std::vector<std::vector<StorageId>> frees(runs.size());
  std::vector<bool> used_later(graph.storages.size(), false);
  const auto use = [&](StorageId s, size_t i) {
    if (used_later[s] || pinned[s]) return;
    used_later[s] = true;
    frees[i].push_back(s);
  };
  for (size_t i = runs.size(); i-- > 0;) {
    const Node& node = graph.nodes[runs[i]];
    for (ValueId v : graph.out(node)) use(graph.values[v].storage, i);
    for (ValueId v : graph.in(node)) use(graph.values[v].storage, i);
    if (node.op->kind != OpKind::kCompute) continue;
    for (ValueId v : graph.out(node)) used_later[graph.values[v].storage] = false;
  }
  Plan plan;
  plan.steps.reserve(runs.size() * 2);
  std::vector<bool> touched = pinned;
  for (NodeId n : runs) {
    for (ValueId v : graph.in(graph.nodes[n])) touched[graph.values[v].storage] = true;
    for (ValueId v : graph.out(graph.nodes[n])) touched[graph.values[v].storage] = true;
  }
  for (size_t s = 0; s < touched.size(); ++s) {
    if (graph.storages[s].resident && !touched[s]) {
      plan.steps.push_back({PlanStep::kFree, static_cast<StorageId>(s)});
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    plan.steps.push_back({PlanStep::kRun, runs[i]});
    std::sort(frees[i].begin(), frees[i].end());
    for (StorageId s : frees[i]) plan.steps.push_back({PlanStep::kFree, s});
  }
  return plan;
}

Plan PlanNone(const Graph& graph) {
  std::vector<NodeId> runs(graph.nodes.size());
  for (size_t n = 0; n < runs.size(); ++n) runs[n] = static_cast<NodeId>(n);
  Plan plan = PlanFromRuns(graph, runs);
  plan.name = "none";
  return plan;
}

std::vector<NodeId> RunsOf(const Plan& plan) {
  std::vector<NodeId> runs;
  for (const PlanStep& step : plan.steps) {
    if (step.kind == PlanStep::kRun) runs.push_back(step.id);
  }
  return runs;
}

std::vector<NodeId> RerunsOf(const Graph& graph, const Plan& plan) {
  std::vector<bool> ran(graph.nodes.size(), false);
  std::vector<NodeId> reruns;
  for (NodeId n : RunsOf(plan)) {
    if (ran[n]) reruns.push_back(n);
    ran[n] = true;
  }
  return reruns;
}

}  // namespace tally
