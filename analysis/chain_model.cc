#include "tally/analysis/chain_model.h"

#include <algorithm>
#include <utility>

#include "tally/tensor/check.h"

namespace tally {
namespace {

constexpr int Index(StageRun run) { return static_cast<int>(run); }

class Modeler {
 public:
  Modeler(const Graph& graph, const LayerChain& chain, const NodeCosts& costs)
      : g_(graph), chain_(chain), costs_(costs) {}

  ChainModel Make() {
    NoteOwners();
    NoteFixed();
    ChainModel model;
    std::vector<bool> in_pass(g_.nodes.size(), false);
    for (size_t p = 0; p < chain_.passes.size(); ++p) {
      const std::vector<ChainStage>& stages = chain_.passes[p].stages;
      PassModel pass;
      for (size_t j = 0; j < stages.size(); ++j) pass.stages.push_back(MakeStage(stages, j));
      model.passes.push_back(std::move(pass));
      for (NodeId n = stages[0].first; n < stages[0].back_end; ++n) in_pass[n] = true;
    }
    for (const StorageRecord& record : g_.storages)
      model.rest += record.resident ? record.bytes : 0;
    for (size_t n = 0; n < in_pass.size(); ++n) {
      if (!in_pass[n]) model.rest = std::max(model.rest, during_[n]);
    }
    return model;
  }

 private:
  StorageId StorageOf(ValueId v) const { return g_.values[v].storage; }

  void NoteOwners() {
    order_.assign(g_.nodes.size(), kNone);
    owner_.assign(g_.storages.size(), kNone);
    int order = 0;  // stages of all passes counted through
    for (const ChainPass& pass : chain_.passes) {
      for (const ChainStage& stage : pass.stages) {
        for (NodeId n = stage.first; n < stage.end; ++n) order_[n] = order;
        if (stage.boundary != kNone) owner_[stage.boundary] = order;
        for (const StorageId s : stage.tape) owner_[s] = order;
        for (const StorageId s : stage.inner) owner_[s] = order;
        ++order;
      }
    }
    maker_.assign(g_.storages.size(), kNone);
    last_use_.assign(g_.storages.size(), kNone);
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes.size()); ++n) {
      const Node& node = g_.nodes[n];
      for (const ValueId v : g_.in(node)) last_use_[StorageOf(v)] = n;
      for (const ValueId v : g_.out(node)) {
        last_use_[StorageOf(v)] = n;
        if (node.op->kind == OpKind::kCompute) maker_[StorageOf(v)] = n;
      }
    }
  }

  // What lives whatever the plan: during_[n] while node n runs, with its scratch; before_[n] just
  // before it.
  void NoteFixed() {
    const NodeId nodes = static_cast<NodeId>(g_.nodes.size());
    // What a stage reads when it runs again must live until its backward begins.
    std::vector<NodeId> until(g_.storages.size(), kNone);
    for (const ChainPass& pass : chain_.passes) {
      for (const ChainStage& stage : pass.stages) {
        for (NodeId n = stage.first; n < stage.end; ++n) {
          if (!RunsAgain(n)) continue;
          for (const ValueId v : g_.in(g_.nodes[n])) {
            NodeId& to = until[StorageOf(v)];
            to = std::max(to, stage.back_first);
          }
        }
      }
    }
    scratch_.assign(g_.nodes.size(), 0);
    std::vector<bool> has_value(g_.storages.size(), false);
    for (const Value& value : g_.values) has_value[value.storage] = true;
    for (const StorageEvent& e : g_.events) {
      const StorageRecord& record = g_.storages[e.storage];
      if (e.kind != StorageEvent::kAllocate || has_value[e.storage] || e.at >= nodes) continue;
      if (record.origin == Origin::kScratch) scratch_[e.at] += record.bytes;
    }
    const std::vector<bool> pinned = PinnedStorages(g_);
    std::vector<NodeId> first_use(g_.storages.size(), kNone);
    for (NodeId n = nodes; n-- > 0;) {
      for (const ValueId v : g_.in(g_.nodes[n])) first_use[StorageOf(v)] = n;
      for (const ValueId v : g_.out(g_.nodes[n])) first_use[StorageOf(v)] = n;
    }
    std::vector<int64_t> during(g_.nodes.size() + 2, 0), before(g_.nodes.size() + 2, 0);
    const auto lives = [](std::vector<int64_t>& change, NodeId from, NodeId to, int64_t bytes) {
      if (from > to) return;
      change[from] += bytes;
      change[to + 1] -= bytes;
    };
    for (size_t s = 0; s < g_.storages.size(); ++s) {
      const StorageRecord& record = g_.storages[s];
      if (owner_[s] != kNone || (first_use[s] == kNone && !pinned[s])) continue;
      if (first_use[s] == kNone && !record.resident) continue;  // scratch, or nothing that ran
      const NodeId from = record.resident ? 0 : first_use[s];
      const NodeId to = pinned[s] ? nodes - 1 : last_use_[s];
      lives(during, from, std::max(to, until[s] - 1), record.bytes);
      lives(before, record.resident ? 0 : from + 1, std::max(to, until[s]), record.bytes);
    }
    during_.assign(g_.nodes.size() + 1, 0);
    before_ = during_;
    int64_t now = 0, across = 0;
    for (NodeId n = 0; n <= nodes; ++n) {
      now += during[n];
      across += before[n];
      during_[n] = now + (n < nodes ? scratch_[n] : 0);
      before_[n] = across;
    }
  }

  // Compute nodes of a stage whose outputs it owns.
  bool RunsAgain(NodeId n) const {
    const Node& node = g_.nodes[n];
    return node.phase == Phase::kForward && node.op->kind == OpKind::kCompute && node.num_out > 0 &&
           owner_[StorageOf(g_.out(node)[0])] != kNone;
  }

  int64_t Bytes(StorageId s) const { return s == kNone ? 0 : g_.storages[s].bytes; }

  // The nodes of a stage that make `targets` from its input and what stays.
  std::vector<NodeId> Closure(const ChainStage& stage, const std::vector<StorageId>& targets) {
    std::vector<bool> needed(stage.end - stage.first, false);
    std::vector<NodeId> runs;
    for (const StorageId s : targets) needed[maker_[s] - stage.first] = true;
    for (NodeId n = stage.end; n-- > stage.first;) {
      if (!needed[n - stage.first]) continue;
      runs.push_back(n);
      for (const ValueId v : g_.in(g_.nodes[n])) {
        const StorageId s = StorageOf(v);
        if (owner_[s] == order_[n]) needed[maker_[s] - stage.first] = true;
      }
    }
    std::reverse(runs.begin(), runs.end());
    return runs;
  }

  // Peak over `nodes`, run in order, of what the stage owns and its input, beside `beside[n]`, or
  // beside the scratch. What is in `kept` stays; the input too, when asked.
  int64_t Walk(const std::vector<NodeId>& nodes, StorageId input, bool input_stays,
               const std::vector<StorageId>& kept, const std::vector<int64_t>* beside) {
    const auto owned = [&](StorageId s, NodeId n) { return owner_[s] == order_[n]; };
    last_.clear();
    last_.resize(nodes.size());
    seen_.resize(g_.storages.size(), false);
    std::vector<StorageId> touched;
    const auto note = [&](StorageId s, size_t i) {
      if (seen_[s]) return;
      seen_[s] = true;
      touched.push_back(s);
      last_[i].push_back(s);
    };
    for (const StorageId s : kept) {
      seen_[s] = true;
      touched.push_back(s);
    }
    if (input_stays && input != kNone) {
      seen_[input] = true;
      touched.push_back(input);
    }
    for (size_t i = nodes.size(); i-- > 0;) {
      const Node& node = g_.nodes[nodes[i]];
      for (const ValueId v : g_.out(node)) {
        if (owned(StorageOf(v), nodes[i])) note(StorageOf(v), i);
      }
      for (const ValueId v : g_.in(node)) {
        const StorageId s = StorageOf(v);
        if (s == input || owned(s, nodes[i])) note(s, i);
      }
    }
    int64_t live = input != kNone && seen_[input] ? Bytes(input) : 0, peak = live;
    for (const StorageId s : touched) seen_[s] = false;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = g_.nodes[nodes[i]];
      if (node.op->kind == OpKind::kCompute) {
        for (const ValueId v : g_.out(node)) {
          if (owned(StorageOf(v), nodes[i])) live += Bytes(StorageOf(v));
        }
      }
      const int64_t more = beside != nullptr ? (*beside)[nodes[i]] : scratch_[nodes[i]];
      peak = std::max(peak, live + more);
      for (const StorageId s : last_[i]) live -= Bytes(s);
    }
    return peak;
  }

  StageModel MakeStage(const std::vector<ChainStage>& stages, size_t j) {
    const ChainStage& stage = stages[j];
    const StorageId input = j > 0 ? stages[j - 1].boundary : kNone;
    StageModel m;
    m.boundary_bytes = Bytes(stage.boundary);
    for (const StorageId s : stage.tape) m.tape_bytes += Bytes(s);
    m.reads_in = stage.reads_in;
    m.reads_out = stage.reads_out;
    m.base = before_[stage.back_first];

    std::vector<StorageId> boundary, both = stage.tape;
    if (stage.boundary != kNone) {
      boundary.push_back(stage.boundary);
      both.push_back(stage.boundary);
    }
    std::vector<NodeId> all;
    for (NodeId n = stage.first; n < stage.end; ++n) all.push_back(n);
    for (int stays = 0; stays < 2; ++stays) {
      m.first[stays][0] = Walk(all, input, stays != 0, boundary, &during_);
      m.first[stays][1] = Walk(all, input, stays != 0, both, &during_);
    }
    const std::vector<StorageId>* targets[kNumStageRuns] = {&boundary, &stage.tape, &both};
    for (int r = 0; r < kNumStageRuns; ++r) {
      m.runs[r] = Closure(stage, *targets[r]);
      m.cost[r] = costs_.Of(m.runs[r]);
      for (int stays = 0; stays < 2; ++stays) {
        m.again[r][stays] = Walk(m.runs[r], input, stays != 0, *targets[r], nullptr);
      }
    }
    if (stage.boundary != kNone) {
      const std::vector<NodeId>& tape = m.runs[Index(StageRun::kTape)];
      m.tape_alone = !std::binary_search(tape.begin(), tape.end(), maker_[stage.boundary]);
    }
    const bool input_stays = j > 0 && stages[j - 1].reads_out;
    m.back = BackPeak(stage, input, input_stays);
    return m;
  }

  int64_t BackPeak(const ChainStage& stage, StorageId input, bool input_stays) {
    std::vector<StorageId> live_ids = stage.tape;
    if (stage.reads_in || input_stays) live_ids.push_back(input);
    if (stage.reads_out) live_ids.push_back(stage.boundary);
    int64_t live = 0, peak = 0;
    for (const StorageId s : live_ids) {
      live += Bytes(s);
      seen_.resize(g_.storages.size(), false);
      seen_[s] = true;
    }
    std::vector<std::vector<StorageId>> ends(stage.back_end - stage.back_first);
    if (input_stays) seen_[input] = false;
    for (NodeId n = stage.back_end; n-- > stage.back_first;) {
      for (const ValueId v : g_.in(g_.nodes[n])) {
        const StorageId s = StorageOf(v);
        if (s == kNone || !seen_[s]) continue;
        seen_[s] = false;
        ends[n - stage.back_first].push_back(s);
      }
    }
    for (const StorageId s : live_ids) seen_[s] = false;
    for (NodeId n = stage.back_first; n < stage.back_end; ++n) {
      peak = std::max(peak, live + during_[n]);
      for (const StorageId s : ends[n - stage.back_first]) live -= Bytes(s);
    }
    return peak;
  }

  const Graph& g_;
  const LayerChain& chain_;
  const NodeCosts& costs_;
  std::vector<int> order_;                // per node: its stage, all passes counted through
  std::vector<int> owner_;                // per storage: the stage that owns it
  std::vector<NodeId> maker_, last_use_;  // per storage
  std::vector<int64_t> scratch_, during_, before_;
  std::vector<std::vector<StorageId>> last_;
  std::vector<bool> seen_;
};

}  // namespace

ChainModel ModelChain(const Graph& graph, const LayerChain& chain, const NodeCosts& costs) {
  TALLY_CHECK(costs.of.size() == graph.nodes.size()) << "costs of another graph";
  return Modeler(graph, chain, costs).Make();
}

ChainRuns::ChainRuns(const Graph& graph, const LayerChain& chain, const ChainModel& model)
    : g_(graph),
      chain_(chain),
      model_(model),
      made_(graph.values.size(), 0),
      count_(graph.storages.size(), 0) {
  runs_.reserve(graph.nodes.size() * 2);
}

bool ChainRuns::Stale(ValueId v) const {
  const Value& value = g_.values[v];
  return value.producer != kNone && g_.nodes[value.producer].op->kind == OpKind::kView &&
         made_[v] != count_[value.storage];
}

// Views of what was made again are taken again just before they are read.
void ChainRuns::Run(NodeId n) {
  std::vector<NodeId> pending = {n};
  while (!pending.empty()) {
    const NodeId now = pending.back();
    bool ready = true;
    for (const ValueId v : g_.in(g_.nodes[now])) {
      if (!Stale(v)) continue;
      pending.push_back(g_.values[v].producer);
      ready = false;
      break;
    }
    if (!ready) continue;
    pending.pop_back();
    runs_.push_back(now);
    const OpKind kind = g_.nodes[now].op->kind;
    for (const ValueId v : g_.out(g_.nodes[now])) {
      if (kind == OpKind::kCompute) ++count_[g_.values[v].storage];
      made_[v] = count_[g_.values[v].storage];
    }
  }
}

void ChainRuns::Recorded(NodeId first, NodeId end) {
  for (NodeId n = first; n < end; ++n) Run(n);
  next_ = end;
}

void ChainRuns::EnterPass(size_t pass) {
  pass_ = pass;
  Recorded(next_, chain_.passes[pass].stages[0].first);
}

void ChainRuns::First(size_t stage) {
  const ChainStage& s = chain_.passes[pass_].stages[stage];
  TALLY_CHECK(next_ == s.first) << "stage " << stage << " does not come next";
  Recorded(s.first, s.end);
}

void ChainRuns::Again(size_t stage, StageRun what) {
  for (const NodeId n : model_.passes[pass_].stages[stage].runs[Index(what)]) Run(n);
}

void ChainRuns::Back(size_t stage) {
  const ChainStage& s = chain_.passes[pass_].stages[stage];
  TALLY_CHECK(next_ == s.back_first) << "backward of stage " << stage << " does not come next";
  Recorded(s.back_first, s.back_end);
}

std::vector<NodeId> ChainRuns::Finish() {
  Recorded(next_, static_cast<NodeId>(g_.nodes.size()));
  return std::move(runs_);
}

}  // namespace tally
