#include "tally/analysis/plan_selective.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/keep_cut.h"
#include "tally/analysis/plan_problem.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/provenance.h"
#include "tally/analysis/retention.h"

namespace tally {
namespace {

Plan Named(Plan plan, std::string name, std::string note = "") {
  plan.name = std::move(name);
  plan.note = std::move(note);
  return plan;
}

// Contractions of which both operands are activations, and the fused ops among them.
struct Contractions {
  std::vector<bool> any, of_activations;
  bool fused = false;
};

Contractions FindContractions(const Graph& graph) {
  const Provenance provenance(graph);
  Contractions found;
  found.any.assign(graph.nodes.size(), false);
  found.of_activations.assign(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op->kind != OpKind::kCompute || CostOf(graph, node).matmul == 0) continue;
    found.any[n] = true;
    bool parameter = false;
    for (ValueId v : graph.in(node)) parameter |= provenance.parameter(v) != kNone;
    found.of_activations[n] = !parameter;
    // Ops that count what a mask hides are attention in one piece.
    if (!parameter && node.op->masked != nullptr && node.phase == Phase::kForward)
      found.fused = true;
  }
  return found;
}

// Per node: what it makes is made again.
std::vector<bool> AttentionCore(const Graph& graph, const Contractions& contractions) {
  const size_t count = graph.nodes.size();
  // After such a contraction, and before one, with nothing but elementwise ops and views between.
  std::vector<bool> after(count, false), before(count, false);
  for (size_t n = 0; n < count; ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::kForward) continue;
    if (contractions.any[n]) {
      after[n] = contractions.of_activations[n];
      continue;
    }
    for (ValueId v : graph.in(node)) {
      const NodeId producer = graph.values[v].producer;
      if (producer != kNone && after[producer]) after[n] = true;
    }
  }
  for (size_t n = count; n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::kForward) continue;
    if (!(contractions.any[n] ? contractions.of_activations[n] : before[n])) continue;
    for (ValueId v : graph.in(node)) {
      if (graph.values[v].producer != kNone) before[graph.values[v].producer] = true;
    }
  }
  std::vector<bool> core(count);
  for (size_t n = 0; n < count; ++n) core[n] = after[n] && before[n];
  return core;
}

// Elementwise, or by rows: a result as large as the largest thing it reads.
bool IsCheap(const Graph& graph, const Node& node) {
  int64_t most = 0;
  for (ValueId v : graph.in(node)) most = std::max(most, graph.numel(v));
  return node.num_in > 0 && node.num_out > 0 && graph.numel(graph.out(node)[0]) == most;
}

// Storages that one block makes and another one's forward, or what is outside of blocks, reads.
std::vector<bool> CrossingStorages(const PlanProblem& p) {
  const Graph& g = p.graph();
  std::vector<bool> crosses(p.num_storages(), false);
  const std::vector<ScopeId> blocks = FindBlocks(g);
  if (blocks.empty()) return crosses;
  std::vector<int> block(g.scopes.size(), kNone);
  for (size_t i = 0; i < blocks.size(); ++i) block[blocks[i]] = static_cast<int>(i);
  for (size_t s = 1; s < g.scopes.size(); ++s) {
    if (block[s] == kNone) block[s] = block[g.scopes[s].parent];
  }
  for (NodeId n = 0; n < p.num_nodes(); ++n) {
    if (g.nodes[n].phase != Phase::kForward) continue;
    for (StorageId s : p.reads(n)) {
      if (p.maker(s) != kNone && block[g.nodes[p.maker(s)].scope] != block[g.nodes[n].scope])
        crosses[s] = true;
    }
  }
  return crosses;
}

// Gives back `drop` where forward has used it last and backward has not yet.
Plan GiveBack(const PlanProblem& p, const std::vector<bool>& drop) {
  const Graph& g = p.graph();
  const NodeCosts costs = FlopCosts(g);
  Retention retention(p, costs);
  for (StorageId s = 0; s < p.num_storages(); ++s) {
    if (!drop[s] || !p.droppable(s)) continue;
    const absl::Span<const NodeId> users = p.users(s);
    for (size_t i = 0; i < users.size(); ++i) {
      if (g.nodes[users[i]].phase != Phase::kForward) continue;
      const NodeId next = i + 1 < users.size() ? users[i + 1] : p.num_nodes();
      const bool last = next == p.num_nodes() || g.nodes[next].phase != Phase::kForward;
      if (last && next > users[i] + 1) retention.Add({s, users[i], next});
    }
  }
  const RunList list = retention.MakeHolding();
  return list.valid ? PlanFromRuns(g, list.Nodes()) : PlanNone(g);
}

// First backward nodes after forward ones: where a forward pass ends.
std::vector<NodeId> Boundaries(const Graph& graph) {
  std::vector<NodeId> at;
  bool forward = false;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Phase phase = graph.nodes[n].phase;
    if (phase == Phase::kBackward && forward) at.push_back(static_cast<NodeId>(n));
    if (phase == Phase::kForward) forward = true;
    if (phase == Phase::kBackward) forward = false;
  }
  return at;
}

}  // namespace

const std::vector<std::string>& SelectiveKinds() {
  static const auto* const kKinds = new std::vector<std::string>{"attention", "cheap", "matmul"};
  return *kKinds;
}

absl::StatusOr<Plan> PlanSelective(const Graph& graph, const std::string& kind) {
  const std::vector<std::string>& kinds = SelectiveKinds();
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", kind, "\" is no kind of op to recompute; there are ", absl::StrJoin(kinds, ", ")));
  }
  const std::string name = "selective:" + kind;
  const PlanProblem p(graph);
  const std::string nothing = p.NothingToDo();
  if (!nothing.empty()) return Named(PlanNone(graph), name, nothing);
  const Contractions contractions = FindContractions(graph);
  std::vector<bool> again;
  if (kind == "attention") {
    again = AttentionCore(graph, contractions);
  } else {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      again.push_back(!contractions.any[n] && (kind == "matmul" || IsCheap(graph, graph.nodes[n])));
    }
  }
  const std::vector<bool> crosses = CrossingStorages(p);
  std::vector<bool> drop(p.num_storages(), false);
  for (NodeId n = 0; n < p.num_nodes(); ++n) {
    if (!again[n] || graph.nodes[n].phase != Phase::kForward) continue;
    for (StorageId s : p.makes(n)) drop[s] = !crosses[s];
  }
  Plan plan = GiveBack(p, drop);
  if (!RerunsOf(graph, plan).empty()) return Named(std::move(plan), name);
  const bool fused = kind == "attention" && contractions.fused;
  return Named(PlanNone(graph), name,
               fused ? "attention is one fused op in this record: it keeps no scores"
                     : absl::StrCat("nothing is kept that this kind makes"));
}

MinCutPlan PlanMinCut(const Graph& graph, const NodeCosts& costs, int64_t bytes) {
  MinCutPlan made;
  const std::string name = absl::StrCat("mincut:", bytes);
  const PlanProblem p(graph);
  const std::string nothing = p.NothingToDo();
  if (!nothing.empty()) {
    made.plan = Named(PlanNone(graph), name, nothing);
    return made;
  }
  Retention retention(p, costs);
  made.optimal = true;
  for (NodeId at : Boundaries(graph)) {
    KeepCut cut(p, costs, at);
    if (cut.needed_bytes() + cut.held_bytes() <= bytes) continue;
    KeepChoice choice;
    double bound = 0;
    bool optimal = false;
    if (!cut.Within(bytes - cut.held_bytes(), /*solves=*/2000, &choice, &bound, &optimal)) {
      made.plan = Named(PlanNone(graph), name,
                        absl::StrCat("no choice keeps at most ", bytes, " B before backward: ",
                                     cut.held_bytes(), " B stay whatever is made again"));
      return made;
    }
    made.extra_cost += choice.cost;
    made.bound += bound;
    made.optimal = made.optimal && optimal;
    for (StorageId s : cut.storages()) {
      if (std::binary_search(choice.kept.begin(), choice.kept.end(), s)) continue;
      const absl::Span<const NodeId> users = p.users(s);
      const auto next = std::lower_bound(users.begin(), users.end(), at);
      retention.Add({s, *(next - 1), next == users.end() ? p.num_nodes() : *next});
    }
  }
  const RunList list = retention.MakeHolding();
  made.plan = Named(list.valid ? PlanFromRuns(graph, list.Nodes()) : PlanNone(graph), name);
  return made;
}

std::vector<Plan> MinCutCorners(const Graph& graph, const NodeCosts& costs, int most) {
  std::vector<Plan> plans;
  const PlanProblem p(graph);
  const std::vector<NodeId> boundaries = Boundaries(graph);
  if (!p.NothingToDo().empty() || boundaries.empty()) return plans;
  KeepCut cut(p, costs, boundaries[0]);
  std::vector<KeepBound> bounds;
  for (const KeepChoice& corner : cut.Hull(most, &bounds)) {
    if (corner.bytes >= cut.needed_bytes()) continue;
    plans.push_back(PlanMinCut(graph, costs, corner.bytes + cut.held_bytes()).plan);
  }
  return plans;
}

int64_t BoundaryBytes(const Graph& graph, const Plan& plan) {
  const PlanProblem p(graph);
  const NodeCosts costs = FlopCosts(graph);
  const RunList list = PriceRuns(p, costs, RunsOf(plan));
  int64_t most = 0;
  for (NodeId at : Boundaries(graph)) {
    // The first run that belongs to the moment.
    int32_t first = 0;
    while (list.runs[first].before < at) ++first;
    int64_t bytes = 0;
    for (const StorageLife& life : list.lives) {
      if (p.droppable(life.storage) && life.begin < first && life.end >= first)
        bytes += p.bytes(life.storage);
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace tally
