#include "tally/analysis/zero.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/analysis/plan_sqrt.h"
#include "tally/analysis/provenance.h"

namespace tally {
namespace {

constexpr int kNoUnit = -1;

// The first stage that splits a part; beyond the last for parts that none does.
int SplitFrom(BudgetPart part) {
  switch (part) {
    case BudgetPart::kMoments:
    case BudgetPart::kMaster:
      return 1;
    case BudgetPart::kGradients:
      return 2;
    case BudgetPart::kParameters:
      return 3;
    default:
      return kMostZeroStage + 1;
  }
}

// Blocks and the rest: which unit a node runs in, and which one a parameter is gathered with.
class Units {
 public:
  explicit Units(const Graph& graph) : g_(graph), provenance_(graph) {
    const std::vector<ScopeId> blocks = FindBlocks(graph);
    rest_ = static_cast<int>(blocks.size());
    of_scope_.assign(graph.scopes.size(), rest_);
    for (size_t i = 0; i < blocks.size(); ++i) of_scope_[blocks[i]] = static_cast<int>(i);
    for (size_t s = 1; s < graph.scopes.size(); ++s) {
      if (of_scope_[s] == rest_) of_scope_[s] = of_scope_[graph.scopes[s].parent];
    }
    for (ScopeId block : blocks) units_.push_back({.name = graph.ScopePath(block)});
    units_.push_back({.name = blocks.empty() ? "the model" : "the rest"});
    AssignParameters();
  }

  // kNoUnit: the optimizer, and sums over micro-batches, which are made of the ranks' parts.
  int OfNode(const Node& node) const {
    const bool apart =
        node.phase == Phase::kOptimizer || (node.phase == Phase::kBackward && node.serves == kNone);
    return apart ? kNoUnit : of_scope_[node.scope];
  }
  // The unit whose parameter `v` is a form of; kNoUnit when it is none.
  int OfValue(ValueId v) const {
    const StorageId parameter = provenance_.parameter(v);
    return parameter == kNone ? kNoUnit : of_parameter_[parameter];
  }
  const ZeroUnit& unit(int u) const { return units_[u]; }
  std::vector<ZeroUnit> Holding() const {
    std::vector<ZeroUnit> list;
    for (const ZeroUnit& unit : units_) {
      if (unit.parameters > 0) list.push_back(unit);
    }
    return list;
  }

 private:
  // With the block that reads it; one that several read, or none, is of the rest.
  void AssignParameters() {
    constexpr int kUnread = -2;
    of_parameter_.assign(g_.storages.size(), kUnread);
    for (const Node& node : g_.nodes) {
      if (node.phase != Phase::kForward || node.op->kind == OpKind::kView) continue;
      for (ValueId v : g_.in(node)) {
        const StorageId s = provenance_.parameter(v);
        if (s == kNone) continue;
        int& unit = of_parameter_[s];
        const int reader = of_scope_[node.scope];
        unit = unit == kUnread || unit == reader ? reader : rest_;
      }
    }
    for (size_t s = 0; s < g_.storages.size(); ++s) {
      if (of_parameter_[s] == kUnread) of_parameter_[s] = rest_;
      if (g_.storages[s].origin == Origin::kParameter)
        units_[of_parameter_[s]].parameters += g_.storages[s].bytes;
    }
    absl::flat_hash_map<StorageId, bool> seen;
    for (size_t i = 0; i < g_.gradients.size(); ++i) {
      if (g_.gradients[i] == kNone) continue;
      const StorageId parameter = g_.values[g_.gradient_of[i]].storage;
      if (!seen.try_emplace(parameter, true).second) continue;
      units_[of_parameter_[parameter]].gradients +=
          g_.storages[g_.values[g_.gradients[i]].storage].bytes;
    }
  }

  const Graph& g_;
  const Provenance provenance_;
  int rest_ = 0;
  std::vector<int> of_scope_, of_parameter_;
  std::vector<ZeroUnit> units_;
};

// Steps that run in one unit, one after the other.
struct Stretch {
  int unit = kNoUnit;
  std::vector<int> reads;  // units whose parameters are read
  int64_t gathered = 0;
  std::string names, next;
};

class Walk {
 public:
  Walk(const Graph& graph, const std::vector<LiveStep>& steps, const Units& units,
       ZeroReport& report)
      : g_(graph), steps_(steps), units_(units), r_(report), roles_(GradientRoles(graph)) {
    Divide();
    Gather();
    for (const FlatGroup& group : r_.groups) {
      if (!group.split) continue;
      (group.part == BudgetPart::kGradients ? gradient_part_ : kept_) += group.rank_bytes();
    }
  }

  void Run() {
    std::vector<bool> live(g_.storages.size(), false);
    size_t peak = steps_.size();
    for (size_t i = 0; i < steps_.size(); ++i) {
      const LiveStep& step = steps_[i];
      if (step.kind == LiveStep::kAt) {
        Reduce(i);
        if (Measure(i)) peak = i;
        continue;
      }
      const bool begins = step.kind == LiveStep::kBegin;
      live[step.id] = begins;
      Change(step.id, begins ? 1 : -1, i);
    }
    if (peak < steps_.size()) Account(peak);
  }

 private:
  bool IsNode(const LiveStep& step) const {
    return step.kind == LiveStep::kAt && step.id < static_cast<NodeId>(g_.nodes.size());
  }
  bool Splits(BudgetPart part) const { return r_.options.stage >= SplitFrom(part); }
  bool IsGradient(StorageId s) const {
    return Splits(BudgetPart::kGradients) && roles_[s] != GradientRole::kNoGradient;
  }

  // What the storage counts besides the parts that ranks keep. Of a gradient: while it is whole.
  int64_t Bytes(StorageId s) const {
    const Origin origin = g_.storages[s].origin;
    if (origin == Origin::kOptimizerState && Splits(BudgetPart::kMoments)) return 0;
    if (origin == Origin::kParameter && Splits(BudgetPart::kParameters)) return 0;
    return g_.storages[s].bytes;
  }

  // Cuts the steps where another unit begins to run.
  void Divide() {
    stretch_of_.assign(steps_.size(), 0);
    whole_until_.assign(g_.storages.size(), kNone);
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (IsNode(steps_[i])) {
        const Node& node = g_.nodes[steps_[i].id];
        const int unit = units_.OfNode(node);
        if (stretches_.empty() || stretches_.back().unit != unit) stretches_.push_back({unit});
        Stretch& stretch = stretches_.back();
        for (ValueId v : g_.in(node)) {
          const int read = units_.OfValue(v);
          if (read == kNoUnit || unit == kNoUnit || node.op->kind == OpKind::kView) continue;
          if (!absl::c_linear_search(stretch.reads, read)) stretch.reads.push_back(read);
        }
        if (node.phase == Phase::kBackward && node.serves != kNone) {
          for (ValueId v : g_.out(node))
            whole_until_[g_.values[v].storage] = static_cast<int>(stretches_.size()) - 1;
        }
      } else if (steps_[i].kind == LiveStep::kAt && steps_[i].id > 0) {
        stretches_.push_back({kNoUnit});  // the record is over
      }
      stretch_of_[i] = std::max(static_cast<int>(stretches_.size()) - 1, 0);
    }
    if (stretches_.empty()) stretches_.push_back({kNoUnit});
    for (Stretch& stretch : stretches_) absl::c_sort(stretch.reads);
  }

  std::string NamesOf(const std::vector<int>& units) const {
    return absl::StrJoin(units, " and ", [&](std::string* out, int u) {
      absl::StrAppend(out, units_.unit(u).name);
    });
  }

  void Gather() {
    if (!Splits(BudgetPart::kParameters)) return;
    const std::vector<int> nothing;
    const std::vector<int>* ahead = &nothing;  // what the next stretch that reads any reads
    for (size_t i = stretches_.size(); i-- > 0;) {
      Stretch& stretch = stretches_[i];
      if (stretch.unit == kNoUnit) {
        ahead = &nothing;
        continue;
      }
      std::vector<int> more;
      for (int u : stretch.reads) stretch.gathered += units_.unit(u).parameters;
      for (int u : *ahead) {
        if (!r_.options.prefetch || absl::c_linear_search(stretch.reads, u)) continue;
        more.push_back(u);
        stretch.gathered += units_.unit(u).parameters;
      }
      stretch.names = NamesOf(stretch.reads);
      stretch.next = NamesOf(more);
      if (!stretch.reads.empty()) ahead = &stretch.reads;
    }
    for (const Stretch& stretch : stretches_) {
      if (stretch.gathered <= r_.gathered) continue;
      r_.gathered = stretch.gathered;
      r_.gathered_unit = stretch.names;
      r_.gathered_next = stretch.next;
    }
  }

  void Change(StorageId s, int sign, size_t step) {
    if (!IsGradient(s)) {
      live_ += sign * Bytes(s);
      return;
    }
    live_gradients_ += sign;
    if (sign > 0 && stretch_of_[step] <= whole_until_[s]) {
      whole_.push_back(s);
      unreduced_ += Bytes(s);
    } else if (sign < 0) {
      Drop([s](StorageId w) { return w == s; });
    }
  }

  template <typename F>
  void Drop(F gone) {
    const auto end = std::remove_if(whole_.begin(), whole_.end(), [&](StorageId s) {
      if (!gone(s)) return false;
      unreduced_ -= Bytes(s);
      return true;
    });
    whole_.erase(end, whole_.end());
  }

  // Gradients whose unit is done are whole no longer.
  void Reduce(size_t step) {
    const int now = stretch_of_[step];
    if (now == reduced_at_) return;
    reduced_at_ = now;
    Drop([&](StorageId s) { return whole_until_[s] < now; });
  }

  bool Measure(size_t step) {
    const Stretch& stretch = stretches_[stretch_of_[step]];
    if (unreduced_ > r_.unreduced) {
      r_.unreduced = unreduced_;
      r_.unreduced_unit = stretch.unit == kNoUnit ? "" : units_.unit(stretch.unit).name;
    }
    const int64_t bytes = live_ + kept_ + unreduced_ + stretch.gathered +
                          (live_gradients_ > 0 ? gradient_part_ : 0) + steps_[step].scratch;
    if (bytes <= r_.peak_bytes) return false;
    r_.peak_bytes = bytes;
    r_.peak_node = steps_[step].id;
    r_.gathered_at_peak = stretch.gathered;
    r_.unreduced_at_peak = unreduced_;
    gradients_at_peak_ = live_gradients_ > 0;
    return true;
  }

  // The parts of the peak, from what lives at its step.
  void Account(size_t at) {
    const std::vector<BudgetPart> parts = PartsAt(g_, steps_, at);
    std::vector<bool> live(g_.storages.size(), false);
    for (size_t i = 0; i < at; ++i) {
      if (steps_[i].kind != LiveStep::kAt) live[steps_[i].id] = steps_[i].kind == LiveStep::kBegin;
    }
    for (size_t s = 0; s < live.size(); ++s) {
      const StorageId id = static_cast<StorageId>(s);
      if (live[s] && !IsGradient(id)) r_.parts[parts[s]] += Bytes(id);
    }
    for (const FlatGroup& group : r_.groups) {
      if (!group.split) continue;
      if (group.part != BudgetPart::kGradients || gradients_at_peak_)
        r_.parts[group.part] += group.rank_bytes();
    }
    r_.parts[BudgetPart::kTransient] += r_.gathered_at_peak + r_.unreduced_at_peak;
    r_.parts[BudgetPart::kWorkspace] += steps_[at].scratch;
  }

  const Graph& g_;
  const std::vector<LiveStep>& steps_;
  const Units& units_;
  ZeroReport& r_;
  const std::vector<GradientRole> roles_;
  std::vector<Stretch> stretches_;
  std::vector<int> stretch_of_;   // per step
  std::vector<int> whole_until_;  // per storage: the last stretch in which backward writes it
  int64_t kept_ = 0, gradient_part_ = 0;
  int64_t live_ = 0, unreduced_ = 0;
  int live_gradients_ = 0, reduced_at_ = kNone;
  std::vector<StorageId> whole_;
  bool gradients_at_peak_ = false;
};

Count RowBytes(int64_t elements, DType dtype, int64_t ranks) {
  const Partition p = PartitionOf(elements, ranks);
  return Count(p.part) * p.ranks * ItemSize(dtype);
}

void AddCollective(ZeroReport& r, Collective::Kind kind, const char* of, DType dtype,
                   int64_t elements, int64_t times) {
  if (elements == 0) return;
  Collective c{.kind = kind, .of = of, .dtype = dtype, .times = times};
  const int64_t n = r.options.ranks;
  c.payload = RowBytes(elements, dtype, n);
  c.sent = c.payload / n * (n - 1) * times * (kind == Collective::kAllReduce ? 2 : 1);
  r.collectives.push_back(std::move(c));
}

void AddCollectives(const Graph& graph, const ModelStates& states, ZeroReport& r) {
  absl::flat_hash_map<ValueId, int64_t> passes;
  std::vector<bool> trained(graph.storages.size(), false);
  r.micro_batches = 1;
  for (size_t i = 0; i < graph.gradients.size(); ++i) {
    if (graph.gradients[i] == kNone) continue;
    r.micro_batches = std::max(r.micro_batches, ++passes[graph.gradient_of[i]]);
    trained[graph.values[graph.gradient_of[i]].storage] = true;
  }
  bool updates = false;
  for (const Node& node : graph.nodes) updates |= node.phase == Phase::kOptimizer;
  const int stage = r.options.stage;
  const int64_t k = r.micro_batches;
  for (const BudgetLine& line : states.lines) {
    if (line.part != BudgetPart::kGradients) continue;
    const auto kind = stage == 0 ? Collective::kAllReduce : Collective::kReduceScatter;
    AddCollective(r, kind, "gradients", *line.dtype, line.elements, stage < 2 ? 1 : k);
  }
  for (const BudgetLine& line : states.lines) {
    if (line.part != BudgetPart::kParameters) continue;
    if (stage == 3) {
      AddCollective(r, Collective::kAllGather, "parameters, for forward", *line.dtype,
                    line.elements, k);
      if (!passes.empty())
        AddCollective(r, Collective::kAllGather, "parameters, for backward", *line.dtype,
                      line.elements, k);
      continue;
    }
    if (stage == 0 || !updates) continue;
    int64_t elements = 0;
    for (StorageId s : line.storages) {
      if (trained[s]) elements += graph.storages[s].bytes / ItemSize(*line.dtype);
    }
    AddCollective(r, Collective::kAllGather, "parameters, updated", *line.dtype, elements, 1);
  }
}

ZeroReport Apply(const Graph& graph, const std::vector<LiveStep>& steps,
                 const ZeroOptions& options) {
  TALLY_CHECK(options.ranks >= 1 && options.stage >= 0 && options.stage <= kMostZeroStage)
      << "ZeRO stage " << options.stage << " on " << options.ranks << " ranks";
  ZeroReport report;
  report.options = options;
  const ModelStates states = StatesOf(graph);
  for (const BudgetLine& line : states.lines) {
    FlatGroup group{.part = line.part, .what = line.what, .dtype = *line.dtype};
    group.split = options.ranks > 1 && options.stage >= SplitFrom(line.part);
    group.partition = PartitionOf(line.elements, options.ranks);
    report.states[line.part] += group.rank_bytes();
    report.padding_bytes += group.padding_bytes();
    report.groups.push_back(std::move(group));
  }
  const Units units(graph);
  report.units = units.Holding();
  AddCollectives(graph, states, report);
  ZeroReport walked = report;
  // One rank holds everything, and gathers and reduces nothing.
  if (options.ranks == 1) walked.options.stage = 0;
  Walk(graph, steps, units, walked).Run();
  walked.options = options;
  return walked;
}

}  // namespace

int64_t Partition::held(int64_t rank) const {
  return std::clamp<int64_t>(elements - rank * part, 0, part);
}

Partition PartitionOf(int64_t elements, int64_t ranks) {
  Partition p{.elements = elements, .ranks = ranks};
  p.part = elements / ranks + (elements % ranks != 0);
  p.padding = p.part * ranks - elements;
  return p;
}

const char* Name(Collective::Kind kind) {
  constexpr const char* kNames[] = {"all-reduce", "reduce-scatter", "all-gather"};
  return kNames[kind];
}

Count ZeroReport::sent() const {
  Count bytes = 0;
  for (const Collective& c : collectives) bytes += c.sent;
  return bytes;
}

ZeroReport ApplyZero(const Graph& graph, const ZeroOptions& options) {
  return Apply(graph, RecordedSteps(graph), options);
}

ZeroReport ApplyZero(const Graph& graph, const Plan& plan, const ZeroOptions& options) {
  return Apply(graph, PlannedSteps(graph, plan), options);
}

}  // namespace tally
