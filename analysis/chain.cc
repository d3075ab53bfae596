#include "tally/analysis/chain.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tally/analysis/plan_sqrt.h"

namespace tally {
namespace {

constexpr NodeId kEndless = std::numeric_limits<NodeId>::max();
// What more forward nodes than this read is a constant when articulation points are looked for.
constexpr int kFewReaders = 4;

// [begin, end) of a pass; forward nodes stand before `middle`, backward nodes from it on.
struct PassRange {
  NodeId begin = 0, middle = 0, end = 0;
};

class ChainFinder {
 public:
  explicit ChainFinder(const Graph& graph) : g_(graph), stays_(PinnedStorages(graph)) {}

  absl::StatusOr<LayerChain> Find(int most_stages) {
    TALLY_RETURN_IF_ERROR(FindPasses());
    NoteMakers();
    LayerChain chain;
    chain.by_blocks = CutAtBlocks();
    if (!chain.by_blocks) TALLY_RETURN_IF_ERROR(CutAtArticulations());
    const size_t found = MostStages();
    for (std::vector<NodeId>& cuts : cuts_) Merge(cuts, most_stages);
    TALLY_RETURN_IF_ERROR(Classify());
    int64_t constants = 0;
    for (const std::vector<NodeId>& cuts : cuts_) chain.passes.push_back(MakePass(cuts));
    for (size_t s = 0; s < stays_.size(); ++s) constants += shared_[s];
    chain.note = absl::StrCat("planned over ", MostStages(), " stages between ",
                              chain.by_blocks ? "the recorded blocks" : "articulation points");
    if (MostStages() < found) absl::StrAppend(&chain.note, ", merged from ", found);
    if (constants > 0) {
      absl::StrAppend(&chain.note, "; ", constants,
                      constants == 1 ? " value that several stages read stays"
                                     : " values that several stages read stay");
    }
    return chain;
  }

 private:
  NodeId NumNodes() const { return static_cast<NodeId>(g_.nodes.size()); }
  StorageId StorageOf(ValueId v) const { return g_.values[v].storage; }
  size_t MostStages() const {
    size_t most = 0;
    for (const std::vector<NodeId>& cuts : cuts_) most = std::max(most, cuts.size());
    return most;
  }

  // A forward node after backward ones begins a pass; nodes after the last backward belong to none.
  absl::Status FindPasses() {
    PassRange pass;
    bool backward = false, any_forward = false;
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Phase phase = g_.nodes[n].phase;
      if (phase == Phase::kRecompute) {
        return absl::FailedPreconditionError("the record is checkpointed already");
      }
      if (phase == Phase::kForward && backward) {
        passes_.push_back(pass);
        pass = {n, n, n};
        backward = any_forward = false;
      }
      any_forward |= phase == Phase::kForward;
      if (phase == Phase::kBackward && !backward) {
        backward = true;
        pass.middle = n;
      }
      if (phase == Phase::kBackward) pass.end = n + 1;
    }
    if (backward && any_forward) passes_.push_back(pass);
    if (passes_.empty()) {
      return absl::FailedPreconditionError("no backward was recorded: nothing is kept");
    }
    return absl::OkStatus();
  }

  // Who makes and reads each storage; what an update writes stays, and so does all that a node
  // makes which reads something that is written later.
  void NoteMakers() {
    const size_t storages = g_.storages.size();
    maker_.assign(storages, kNone);
    pass_.assign(g_.nodes.size(), kNone);
    for (size_t p = 0; p < passes_.size(); ++p) {
      for (NodeId n = passes_[p].begin; n < passes_[p].end; ++n) pass_[n] = static_cast<int>(p);
    }
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      for (const ValueId v : g_.out(node)) {
        const StorageId s = StorageOf(v);
        if (node.op->kind == OpKind::kView) continue;
        if (maker_[s] != kNone || node.op->kind == OpKind::kUpdate) stays_[s] = true;
        if (node.op->kind == OpKind::kCompute) maker_[s] = n;
      }
    }
    for (const Value& value : g_.values) {
      if (value.producer == kNone) stays_[value.storage] = true;
    }
    std::vector<NodeId> written(storages, kNone);  // in this pass, from its end
    for (NodeId n = NumNodes(); n-- > 0;) {
      const Node& node = g_.nodes[n];
      const bool forward = node.phase == Phase::kForward && pass_[n] != kNone;
      if (node.op->kind == OpKind::kUpdate) {
        for (const ValueId v : g_.out(node)) written[StorageOf(v)] = n;
      }
      for (const ValueId v : g_.in(node)) {
        const NodeId w = written[StorageOf(v)];
        if (node.op->kind == OpKind::kCompute && w != kNone && forward && pass_[w] == pass_[n]) {
          for (const ValueId out : g_.out(node)) stays_[StorageOf(out)] = true;
        }
      }
      if (forward || node.op->kind != OpKind::kCompute) continue;
      for (const ValueId v : g_.out(node)) stays_[StorageOf(v)] = true;  // only forward runs again
    }
    shared_.assign(storages, false);
  }

  bool CutAtBlocks() {
    const std::vector<ScopeId> blocks = FindBlocks(g_);
    if (blocks.empty()) return false;
    block_.assign(g_.scopes.size(), kNone);
    for (size_t i = 0; i < blocks.size(); ++i) block_[blocks[i]] = static_cast<int>(i);
    for (size_t s = 1; s < g_.scopes.size(); ++s) {
      if (block_[s] == kNone) block_[s] = block_[g_.scopes[s].parent];
    }
    blocks_ = blocks;
    std::vector<std::vector<NodeId>> all;
    for (const PassRange& pass : passes_) {
      std::vector<NodeId> cuts;  // first node of each stage
      int now = kNone;
      NodeId last_in_block = kNone;
      for (NodeId n = pass.begin; n < pass.middle; ++n) {
        const Node& node = g_.nodes[n];
        const int b = node.phase == Phase::kForward ? block_[node.scope] : kNone;
        if (b != kNone) {
          if (b < now) return false;
          if (b > now) cuts.push_back(n);
          now = b;
          last_in_block = n;
        } else if (cuts.empty() && node.phase == Phase::kForward) {
          cuts.push_back(pass.begin);
        }
      }
      if (now == kNone) return false;
      for (NodeId n = last_in_block + 1; n < pass.middle; ++n) {
        if (g_.nodes[n].phase != Phase::kForward) continue;
        cuts.push_back(n);
        break;
      }
      cuts.front() = pass.begin;
      if (cuts.size() < 2) return false;
      all.push_back(std::move(cuts));
    }
    cuts_ = std::move(all);
    return true;
  }

  // Cuts where of all that forward made and still reads exactly one storage crosses.
  absl::Status CutAtArticulations() {
    std::vector<NodeId> last_read(g_.storages.size(), kNone);
    std::vector<int> readers(g_.storages.size(), 0);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      if (g_.nodes[n].phase != Phase::kForward) continue;
      for (const ValueId v : g_.in(g_.nodes[n])) {
        last_read[StorageOf(v)] = n;
        readers[StorageOf(v)] += g_.nodes[n].op->kind != OpKind::kView;
      }
    }
    for (const PassRange& pass : passes_) {
      std::vector<NodeId> cuts = {pass.begin};
      std::vector<std::vector<StorageId>> ends(pass.middle - pass.begin);
      int crossing = 0;
      StorageId cut_by = kNone;
      int64_t sum = 0;  // of the ids that cross: the one, when it is one
      for (NodeId n = pass.begin; n < pass.middle; ++n) {
        const Node& node = g_.nodes[n];
        if (node.phase == Phase::kForward && node.op->kind == OpKind::kCompute) {
          for (const ValueId v : g_.out(node)) {
            const StorageId s = StorageOf(v);
            if (stays_[s] || last_read[s] <= n || last_read[s] >= pass.middle) continue;
            if (readers[s] > kFewReaders) continue;
            ++crossing;
            sum += s;
            ends[last_read[s] - pass.begin].push_back(s);
          }
        }
        for (const StorageId s : ends[n - pass.begin]) {
          --crossing;
          sum -= s;
        }
        if (crossing == 1 && sum != cut_by && n + 1 < pass.middle) {
          cut_by = static_cast<StorageId>(sum);
          cuts.push_back(n + 1);
        }
      }
      if (cuts.size() < 2) {
        return absl::FailedPreconditionError(
            "the record is no chain: its blocks do not follow each other, and forward has no point "
            "that a single value crosses");
      }
      cuts_.push_back(std::move(cuts));
    }
    return absl::OkStatus();
  }

  static void Merge(std::vector<NodeId>& cuts, int most) {
    const size_t group = (cuts.size() + most - 1) / most;
    if (group <= 1) return;
    std::vector<NodeId> kept;
    for (size_t i = 0; i < cuts.size(); i += group) kept.push_back(cuts[i]);
    cuts = std::move(kept);
  }

  // Which storages stages own, to a fixed point: what stays can make others stay.
  absl::Status Classify() {
    stage_.assign(g_.nodes.size(), kNone);
    for (size_t p = 0; p < passes_.size(); ++p) {
      const std::vector<NodeId>& cuts = cuts_[p];
      size_t j = 0;
      for (NodeId n = passes_[p].begin; n < passes_[p].middle; ++n) {
        while (j + 1 < cuts.size() && n >= cuts[j + 1]) ++j;
        stage_[n] = static_cast<int>(j);
      }
      // Backward nodes by the forward node that they serve.
      int now = static_cast<int>(cuts.size()) - 1;
      for (NodeId n = passes_[p].middle; n < passes_[p].end; ++n) {
        const NodeId serves = g_.nodes[n].serves;
        if (serves != kNone && pass_[serves] == static_cast<int>(p)) now = stage_[serves];
        stage_[n] = now;
      }
    }
    NoteForwardReads();
    NoteBackwardReads();
    constexpr int kRounds = 200;
    for (int round = 0; round < kRounds; ++round) {
      changed_ = false;
      KeepTogether();
      ChooseBoundaries();
      CutBackward();
      if (!changed_) return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        "the record is no chain: gradients of its stages read each other's values in turn");
  }

  void Stay(StorageId s) {
    if (stays_[s]) return;
    stays_[s] = true;
    changed_ = true;
  }

  void NoteForwardReads() {
    crosses_.assign(g_.storages.size(), false);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward) continue;
      for (const ValueId v : g_.in(node)) {
        const StorageId s = StorageOf(v);
        const NodeId m = maker_[s];
        if (stays_[s] || m == kNone) continue;
        const bool near = pass_[n] == pass_[m] && pass_[n] != kNone &&
                          (stage_[n] == stage_[m] || stage_[n] == stage_[m] + 1);
        if (!near) {
          stays_[s] = shared_[s] = true;
        } else if (stage_[n] != stage_[m]) {
          crosses_[s] = true;
        }
      }
    }
  }

  // Backward may read what its own stage made, and the boundary before it.
  void NoteBackwardReads() {
    first_back_.assign(g_.storages.size(), kEndless);
    last_back_.assign(g_.storages.size(), kNone);
    viewed_back_.assign(g_.storages.size(), false);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase == Phase::kForward) continue;
      for (const ValueId v : g_.in(node)) {
        const StorageId s = StorageOf(v);
        const NodeId m = maker_[s];
        if (stays_[s] || m == kNone) continue;
        const bool near = node.phase == Phase::kBackward && pass_[n] == pass_[m] &&
                          (stage_[n] == stage_[m] || (crosses_[s] && stage_[n] == stage_[m] + 1));
        if (!near) stays_[s] = shared_[s] = true;
        first_back_[s] = std::min(first_back_[s], n);
        last_back_[s] = std::max(last_back_[s], n);
        viewed_back_[s] = viewed_back_[s] || node.op->kind == OpKind::kView;
      }
    }
  }

  // The outputs of a node are made again together, or not at all.
  void KeepTogether() {
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward || node.op->kind != OpKind::kCompute) continue;
      bool stay = stage_[n] == kNone;
      for (const ValueId v : g_.out(node)) stay |= stays_[StorageOf(v)];
      if (!stay) continue;
      for (const ValueId v : g_.out(node)) Stay(StorageOf(v));
    }
  }

  // One storage crosses a cut, the largest; others stay.
  void ChooseBoundaries() {
    boundary_.assign(passes_.size(), {});
    for (size_t p = 0; p < passes_.size(); ++p) boundary_[p].assign(cuts_[p].size(), kNone);
    for (size_t i = 0; i < crosses_.size(); ++i) {
      const StorageId s = static_cast<StorageId>(i);
      if (!crosses_[s] || stays_[s]) continue;
      StorageId& chosen = boundary_[pass_[maker_[s]]][stage_[maker_[s]]];
      if (chosen == kNone) {
        chosen = s;
        continue;
      }
      const StorageId other =
          g_.storages[s].bytes >= g_.storages[chosen].bytes ? std::exchange(chosen, s) : s;
      shared_[other] = true;
      Stay(other);
    }
  }

  // Backward of stage t begins where something first reads its tape or the boundary before it.
  void CutBackward() {
    back_.assign(passes_.size(), {});
    std::vector<std::vector<NodeId>> first(passes_.size());
    for (size_t p = 0; p < passes_.size(); ++p) first[p].assign(cuts_[p].size() + 1, kEndless);
    for (size_t i = 0; i < stays_.size(); ++i) {
      const StorageId s = static_cast<StorageId>(i);
      if (stays_[s] || maker_[s] == kNone || first_back_[s] == kEndless) continue;
      std::vector<NodeId>& of = first[pass_[maker_[s]]];
      const int j = stage_[maker_[s]];
      NodeId& at = of[s == boundary_[pass_[maker_[s]]][j] ? j + 1 : j];
      at = std::min(at, first_back_[s]);
    }
    for (size_t p = 0; p < passes_.size(); ++p) {
      std::vector<NodeId>& cut = back_[p];
      cut.assign(cuts_[p].size(), passes_[p].end);
      NodeId after = passes_[p].end;
      for (size_t t = 0; t < cut.size(); ++t) {
        after = cut[t] = std::min(after, first[p][t]);
      }
      cut.back() = passes_[p].middle;
    }
    for (size_t i = 0; i < stays_.size(); ++i) {
      const StorageId s = static_cast<StorageId>(i);
      if (stays_[s] || maker_[s] == kNone || first_back_[s] == kEndless) continue;
      const int p = pass_[maker_[s]], j = stage_[maker_[s]];
      const NodeId end = j > 0 ? back_[p][j - 1] : passes_[p].end;
      const bool both = s == boundary_[p][j] && last_back_[s] >= back_[p][j];
      if (last_back_[s] >= end || (both && viewed_back_[s])) {
        shared_[s] = true;
        Stay(s);
      }
    }
  }

  ChainPass MakePass(const std::vector<NodeId>& cuts) {
    const size_t p = &cuts - cuts_.data();
    ChainPass pass;
    pass.stages.resize(cuts.size());
    for (size_t j = 0; j < cuts.size(); ++j) {
      ChainStage& stage = pass.stages[j];
      stage.first = cuts[j];
      stage.end = j + 1 < cuts.size() ? cuts[j + 1] : passes_[p].middle;
      stage.back_first = back_[p][j];
      stage.back_end = j > 0 ? back_[p][j - 1] : passes_[p].end;
      stage.boundary = boundary_[p][j];
      if (!blocks_.empty()) {
        for (NodeId n = stage.first; n < stage.end; ++n) {
          const int b = g_.nodes[n].phase == Phase::kForward ? block_[g_.nodes[n].scope] : kNone;
          if (b != kNone && (stage.blocks.empty() || stage.blocks.back() != blocks_[b])) {
            stage.blocks.push_back(blocks_[b]);
          }
        }
      }
    }
    for (size_t i = 0; i < stays_.size(); ++i) {
      const StorageId s = static_cast<StorageId>(i);
      if (stays_[s] || maker_[s] == kNone || pass_[maker_[s]] != static_cast<int>(p)) continue;
      const int j = stage_[maker_[s]];
      const bool read = first_back_[s] != kEndless;
      if (s != pass.stages[j].boundary) {
        (read ? pass.stages[j].tape : pass.stages[j].inner).push_back(s);
        continue;
      }
      if (!read) continue;
      pass.stages[j].reads_out = last_back_[s] >= back_[p][j];
      if (static_cast<size_t>(j) + 1 < pass.stages.size()) {
        pass.stages[j + 1].reads_in = first_back_[s] < back_[p][j];
      }
    }
    return pass;
  }

  const Graph& g_;
  std::vector<bool> stays_;   // per storage: no stage owns it
  std::vector<bool> shared_;  // of these: because of who reads it
  std::vector<PassRange> passes_;
  std::vector<int> pass_, stage_;               // per node
  std::vector<NodeId> maker_;                   // per storage: the node that computes it
  std::vector<bool> crosses_, viewed_back_;     // per storage
  std::vector<NodeId> first_back_, last_back_;  // per storage: read by backward
  std::vector<ScopeId> blocks_;
  std::vector<int> block_;                        // per scope
  std::vector<std::vector<NodeId>> cuts_, back_;  // per pass and stage: first node
  std::vector<std::vector<StorageId>> boundary_;  // per pass and stage
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<LayerChain> FindChain(const Graph& graph, int most_stages) {
  TALLY_CHECK(most_stages >= 2) << "a chain of " << most_stages << " stages";
  return ChainFinder(graph).Find(most_stages);
}

}  // namespace tally
