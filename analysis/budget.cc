#include "tally/analysis/budget.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tally/analysis/provenance.h"

namespace tally {
namespace {

constexpr const char* kPartNames[kNumBudgetParts] = {
    "parameters", "gradients", "moments", "master", "saved", "transient", "inputs", "workspace"};

std::vector<ValueId> FirstValues(const Graph& graph) {
  std::vector<ValueId> first(graph.storages.size(), kNone);
  for (size_t v = graph.values.size(); v-- > 0;)
    first[graph.values[v].storage] = static_cast<ValueId>(v);
  return first;
}

struct Role {
  BudgetPart part = BudgetPart::kTransient;
  std::string what;
};

// What storages are for, whenever they live. Only `saved` depends on when that is.
class Roles {
 public:
  explicit Roles(const Graph& graph)
      : g_(graph),
        first_(FirstValues(graph)),
        gradients_(GradientRoles(graph)),
        form_(graph.storages.size(), false) {
    const Provenance provenance(graph);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (provenance.parameter(static_cast<ValueId>(v)) != kNone)
        form_[graph.values[v].storage] = true;
    }
  }

  Role Of(StorageId s, bool read_later) const {
    switch (g_.storages[s].origin) {
      case Origin::kParameter:
        return {BudgetPart::kParameters, ""};
      case Origin::kOptimizerState: {
        std::string state = StateName(g_, s);
        return {state == "master" ? BudgetPart::kMaster : BudgetPart::kMoments, std::move(state)};
      }
      case Origin::kInput:
        return {BudgetPart::kInputs, ""};
      case Origin::kScratch:
        if (first_[s] == kNone) return {BudgetPart::kWorkspace, ""};
        return {BudgetPart::kTransient, "made by the optimizer"};
      case Origin::kActivation:
        if (form_[s]) return {BudgetPart::kTransient, "casts and copies of parameters"};
        if (read_later) return {BudgetPart::kSaved, ""};
        return {BudgetPart::kTransient, "activations that backward reads no more"};
      case Origin::kGradient:
        break;
    }
    if (gradients_[s] == GradientRole::kGradient) return {BudgetPart::kGradients, ""};
    if (gradients_[s] == GradientRole::kMicroGradient)
      return {BudgetPart::kTransient, "gradients of one micro-batch"};
    return {BudgetPart::kTransient, "gradients of activations, parts of sums"};
  }

  std::optional<DType> DTypeOf(StorageId s) const {
    if (first_[s] == kNone) return std::nullopt;
    return g_.values[first_[s]].spec.dtype;
  }

 private:
  const Graph& g_;
  std::vector<ValueId> first_;
  std::vector<GradientRole> gradients_;
  std::vector<bool> form_;  // holds a form of a parameter
};

// Lines by part, what and dtype, in order of part and then of their first storage.
class Lines {
 public:
  void Add(const Role& role, std::optional<DType> dtype, StorageId storage, int64_t bytes) {
    const int code = dtype ? static_cast<int>(*dtype) : -1;
    const auto [it, added] = index_.try_emplace({role.part, role.what, code}, lines_.size());
    if (added) {
      lines_.push_back({.part = role.part, .what = role.what, .dtype = dtype});
    }
    BudgetLine& line = lines_[it->second];
    line.bytes += bytes;
    if (dtype) line.elements += bytes / ItemSize(*dtype);
    if (storage != kNone) line.storages.push_back(storage);
  }

  std::vector<BudgetLine> Take(BudgetParts& parts) {
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const BudgetLine& a, const BudgetLine& b) { return a.part < b.part; });
    for (const BudgetLine& line : lines_) parts[line.part] += line.bytes;
    return std::move(lines_);
  }

 private:
  std::vector<BudgetLine> lines_;
  std::map<std::tuple<BudgetPart, std::string, int>, size_t> index_;
};

// The first step at which the most is live.
size_t PeakStep(const Graph& graph, const std::vector<LiveStep>& steps, int64_t* peak) {
  int64_t live = 0;
  size_t at = steps.size();
  *peak = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const LiveStep& step = steps[i];
    if (step.kind == LiveStep::kBegin) live += graph.storages[step.id].bytes;
    if (step.kind == LiveStep::kEnd) live -= graph.storages[step.id].bytes;
    if (step.kind != LiveStep::kAt || live + step.scratch <= *peak) continue;
    *peak = live + step.scratch;
    at = i;
  }
  return at;
}

// Storages that backward, or a node that runs again, reads from `steps[at]` on before they go.
std::vector<bool> ReadLater(const Graph& graph, const std::vector<LiveStep>& steps, size_t at) {
  std::vector<bool> read(graph.storages.size(), false), gone(graph.storages.size(), false);
  for (size_t i = at; i < steps.size(); ++i) {
    const LiveStep& step = steps[i];
    if (step.kind == LiveStep::kEnd) gone[step.id] = true;
    if (step.kind != LiveStep::kAt || step.id >= static_cast<NodeId>(graph.nodes.size())) continue;
    const Node& node = graph.nodes[step.id];
    if (!step.again && node.phase != Phase::kBackward && node.phase != Phase::kRecompute) continue;
    for (ValueId v : graph.in(node)) {
      const StorageId s = graph.values[v].storage;
      if (!gone[s]) read[s] = true;
    }
  }
  return read;
}

Budget BudgetFrom(const Graph& graph, const std::vector<LiveStep>& steps) {
  Budget budget;
  budget.states = StatesOf(graph);
  const size_t at = PeakStep(graph, steps, &budget.peak_bytes);
  if (at == steps.size()) return budget;
  budget.peak_node = steps[at].id;
  std::vector<bool> live(graph.storages.size(), false);
  for (size_t i = 0; i < at; ++i) {
    if (steps[i].kind != LiveStep::kAt) live[steps[i].id] = steps[i].kind == LiveStep::kBegin;
  }
  const std::vector<bool> later = ReadLater(graph, steps, at);
  const Roles roles(graph);
  Lines lines;
  for (size_t s = 0; s < live.size(); ++s) {
    const StorageId id = static_cast<StorageId>(s);
    const int64_t bytes = graph.storages[s].bytes;
    if (live[s] && bytes > 0) lines.Add(roles.Of(id, later[s]), roles.DTypeOf(id), id, bytes);
  }
  if (steps[at].scratch > 0)
    lines.Add({BudgetPart::kWorkspace, ""}, std::nullopt, kNone, steps[at].scratch);
  budget.lines = lines.Take(budget.parts);
  return budget;
}

absl::Status DoNotFit(const Graph& graph, size_t node, const char* why) {
  std::string place = "at the end";
  if (node < graph.nodes.size()) {
    const Node& n = graph.nodes[node];
    place = absl::StrCat("at node ", node, ", ", n.op->name);
    if (n.scope != 0) absl::StrAppend(&place, " in ", graph.ScopePath(n.scope));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the two records are not of one step: ", place, " ", why));
}

// Bytes of scratch at each node: it has no value to be found again by.
std::vector<int64_t> ScratchAt(const Graph& graph, const std::vector<bool>& has_value) {
  std::vector<int64_t> bytes(graph.nodes.size() + 1, 0);
  for (const StorageEvent& e : graph.events) {
    if (e.kind == StorageEvent::kAllocate && !has_value[e.storage])
      bytes[e.at] += graph.storages[e.storage].bytes;
  }
  return bytes;
}

// The storage of `other` that each storage of `graph` with a value corresponds to.
absl::StatusOr<std::vector<StorageId>> LayBeside(const Graph& graph, const Graph& other) {
  for (size_t n = 0; n < std::min(graph.nodes.size(), other.nodes.size()); ++n) {
    const Node &a = graph.nodes[n], &b = other.nodes[n];
    if (std::strcmp(a.op->name, b.op->name) != 0 || a.phase != b.phase || a.num_in != b.num_in ||
        a.num_out != b.num_out) {
      return DoNotFit(graph, n, "they run different ops");
    }
    for (size_t i = 0; i < size_t{a.num_in} + a.num_out; ++i) {
      if (graph.ids[a.first + i] != other.ids[b.first + i])
        return DoNotFit(graph, n, "they use different values");
    }
  }
  if (graph.nodes.size() != other.nodes.size() || graph.values.size() != other.values.size())
    return DoNotFit(graph, graph.nodes.size(), "one of them goes on");
  std::vector<StorageId> partner(graph.storages.size(), kNone);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const StorageId a = graph.values[v].storage, b = other.values[v].storage;
    if (partner[a] != kNone && partner[a] != b) {
      const NodeId producer = graph.values[v].producer;
      return DoNotFit(graph, producer == kNone ? graph.nodes.size() : static_cast<size_t>(producer),
                      "storages are shared in one of them only");
    }
    partner[a] = b;
  }
  return partner;
}

}  // namespace

const char* Name(BudgetPart part) { return kPartNames[static_cast<size_t>(part)]; }

int64_t BudgetParts::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{});
}

double ModelStates::per_parameter(BudgetPart part) const {
  return elements == 0 ? 0 : static_cast<double>(parts[part]) / static_cast<double>(elements);
}

double ModelStates::per_parameter() const {
  return elements == 0 ? 0 : static_cast<double>(total()) / static_cast<double>(elements);
}

std::string StateName(const Graph& graph, StorageId storage) {
  const NameId id = graph.storages[storage].name;
  if (id == kNone) return "state";
  const std::string& name = graph.name(id);
  const size_t dot = name.rfind('.');
  return dot == std::string::npos || dot + 1 == name.size() ? "state" : name.substr(dot + 1);
}

std::vector<GradientRole> GradientRoles(const Graph& graph) {
  std::vector<GradientRole> roles(graph.storages.size(), GradientRole::kNoGradient);
  absl::flat_hash_set<ValueId> seen;
  bool optimizer = false;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kOptimizer) continue;
    optimizer = true;
    for (ValueId v : graph.in(node)) {
      const StorageId s = graph.values[v].storage;
      if (graph.storages[s].origin == Origin::kGradient) roles[s] = GradientRole::kGradient;
    }
  }
  for (size_t i = 0; i < graph.gradients.size(); ++i) {
    if (graph.gradients[i] == kNone) continue;
    const StorageId s = graph.values[graph.gradients[i]].storage;
    const bool first = seen.insert(graph.gradient_of[i]).second;
    if (roles[s] == GradientRole::kNoGradient) {
      roles[s] = first && !optimizer ? GradientRole::kGradient : GradientRole::kMicroGradient;
    }
  }
  return roles;
}

ModelStates StatesOf(const Graph& graph) {
  const Roles roles(graph);
  ModelStates states;
  Lines lines;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const StorageId id = static_cast<StorageId>(s);
    const Role role = roles.Of(id, /*read_later=*/false);
    if (role.part > BudgetPart::kMaster) continue;
    // One that no value shows (no traced record has it) counts in bytes.
    lines.Add(role, roles.DTypeOf(id).value_or(DType::kU8), id, graph.storages[s].bytes);
  }
  states.lines = lines.Take(states.parts);
  for (const BudgetLine& line : states.lines) {
    if (line.part == BudgetPart::kParameters) states.elements += line.elements;
  }
  return states;
}

std::vector<BudgetPart> PartsAt(const Graph& graph, const std::vector<LiveStep>& steps, size_t at) {
  const Roles roles(graph);
  const std::vector<bool> later = ReadLater(graph, steps, at);
  std::vector<BudgetPart> parts;
  for (size_t s = 0; s < graph.storages.size(); ++s)
    parts.push_back(roles.Of(static_cast<StorageId>(s), later[s]).part);
  return parts;
}

Budget BudgetOf(const Graph& graph) { return BudgetFrom(graph, RecordedSteps(graph)); }

Budget BudgetOf(const Graph& graph, const Plan& plan) {
  return BudgetFrom(graph, PlannedSteps(graph, plan));
}

absl::StatusOr<BatchSplit> SplitByBatch(const Graph& graph, const Budget& budget,
                                        const Graph& other) {
  TALLY_ASSIGN_OR_RETURN(const std::vector<StorageId> partner, LayBeside(graph, other));
  const std::vector<int64_t> scratch = ScratchAt(graph, StoragesWithValues(graph)),
                             other_scratch = ScratchAt(other, StoragesWithValues(other));
  BatchSplit split;
  const auto add = [&](BudgetPart part, int64_t bytes, int64_t there) {
    (bytes == there ? split.fixed : split.growing)[part] += bytes;
    split.growth += there - bytes;
  };
  for (const BudgetLine& line : budget.lines) {
    for (StorageId s : line.storages) {
      if (line.part == BudgetPart::kWorkspace) continue;
      if (partner[s] == kNone)
        return DoNotFit(graph, graph.nodes.size(), "a storage without a value has no counterpart");
      add(line.part, graph.storages[s].bytes, other.storages[partner[s]].bytes);
    }
  }
  // Scratch at the peak is that of the peak node, all of it.
  const size_t at = static_cast<size_t>(std::max(budget.peak_node, 0));
  if (budget.parts[BudgetPart::kWorkspace] > 0)
    add(BudgetPart::kWorkspace, budget.parts[BudgetPart::kWorkspace],
        budget.parts[BudgetPart::kWorkspace] + other_scratch[at] - scratch[at]);
  return split;
}

}  // namespace tally
