#include "tally/analysis/verify.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tally/ops/apply.h"

namespace tally {
namespace {

absl::Status Fault(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("graph: ", where, ": ", what));
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : g_(graph) {}

  absl::Status Run() {
    TALLY_RETURN_IF_ERROR(Tables());
    TALLY_RETURN_IF_ERROR(Scopes());
    defined_.assign(g_.values.size(), false);
    for (size_t v = 0; v < g_.values.size(); ++v) defined_[v] = g_.values[v].producer == kNone;
    Rewritten();
    version_.assign(g_.storages.size(), 0);
    last_use_.assign(g_.storages.size(), kNone);
    first_use_.assign(g_.storages.size(), std::numeric_limits<NodeId>::max());
    for (NodeId n = 0; n < NumNodes(); ++n) {
      TALLY_RETURN_IF_ERROR(Operands(n));
      TALLY_RETURN_IF_ERROR(Specs(n));
      TALLY_RETURN_IF_ERROR(Storages(n));
      TALLY_RETURN_IF_ERROR(Serves(n));
    }
    for (size_t v = 0; v < g_.values.size(); ++v) {
      if (!defined_[v]) return Fault(absl::StrCat("value %", v), "no node makes it");
    }
    return Events();
  }

 private:
  NodeId NumNodes() const { return static_cast<NodeId>(g_.nodes.size()); }
  bool IsValue(int32_t v) const { return v >= 0 && v < static_cast<int32_t>(g_.values.size()); }
  bool IsName(int32_t n) const { return n >= kNone && n < static_cast<int32_t>(g_.names.size()); }
  bool IsStorage(int32_t s) const { return s >= 0 && s < static_cast<int32_t>(g_.storages.size()); }
  std::string At(NodeId n) const {
    const OpDef* op = g_.nodes[n].op;
    return absl::StrCat("node ", n, " (", op == nullptr ? "no op" : op->name, ")");
  }

  absl::Status Tables() const {
    for (size_t v = 0; v < g_.values.size(); ++v) {
      const Value& value = g_.values[v];
      const std::string at = absl::StrCat("value %", v);
      if (!IsStorage(value.storage))
        return Fault(at, absl::StrCat("storage ", value.storage, " does not exist"));
      if (value.producer < kNone || value.producer >= NumNodes()) {
        return Fault(at, absl::StrCat("producer ", value.producer, " does not exist"));
      }
      if (!IsName(value.name)) return Fault(at, "its name does not exist");
      if (!IsName(value.axes)) return Fault(at, "the names of its axes do not exist");
    }
    Count bytes = 0;
    for (size_t s = 0; s < g_.storages.size(); ++s) {
      const StorageRecord& record = g_.storages[s];
      bytes += record.bytes;
      if (bytes > std::numeric_limits<int64_t>::max()) {
        return Fault(absl::StrCat("storage ", s), "the storages add up to more than 2^63-1 bytes");
      }
      if (record.bytes < 0) return Fault(absl::StrCat("storage ", s), "negative size");
      if (!IsName(record.name))
        return Fault(absl::StrCat("storage ", s), "its name does not exist");
    }
    for (const std::vector<ValueId>* list :
         {&g_.outputs, &g_.tokens, &g_.gradients, &g_.gradient_of}) {
      for (ValueId v : *list) {
        if (!IsValue(v)) return Fault("outputs", absl::StrCat("value %", v, " does not exist"));
      }
    }
    if (g_.gradients.size() != g_.gradient_of.size()) {
      return Fault("gradients", "a gradient without the value it belongs to");
    }
    if (g_.loss != kNone && !IsValue(g_.loss)) return Fault("loss", "its value does not exist");
    return absl::OkStatus();
  }

  absl::Status Scopes() const {
    for (size_t s = 0; s < g_.scopes.size(); ++s) {
      const ScopeRecord& scope = g_.scopes[s];
      const bool root = s == 0;
      if (root ? scope.parent != kNone
               : scope.parent < 0 || scope.parent >= static_cast<ScopeId>(s)) {
        return Fault(absl::StrCat("scope ", s),
                     absl::StrCat("its parent is ", scope.parent, ", which is not before it"));
      }
      if (!IsName(scope.name)) return Fault(absl::StrCat("scope ", s), "its name does not exist");
    }
    return absl::OkStatus();
  }

  // Values that an update made without listing them: other views of the storage it wrote.
  void Rewritten() {
    rewritten_.resize(g_.nodes.size());
    std::vector<bool> listed(g_.values.size(), false);
    for (const Node& node : g_.nodes) {
      if (uint64_t{node.first} + node.num_in + node.num_out > g_.ids.size()) continue;
      for (ValueId v : g_.out(node)) {
        if (IsValue(v)) listed[v] = true;
      }
    }
    for (size_t v = 0; v < g_.values.size(); ++v) {
      const Value& value = g_.values[v];
      if (listed[v] || value.producer == kNone) continue;
      const Node& writer = g_.nodes[value.producer];
      bool writes = false;
      if (writer.op != nullptr && writer.op->kind == OpKind::kUpdate &&
          uint64_t{writer.first} + writer.num_in + writer.num_out <= g_.ids.size()) {
        for (ValueId out : g_.out(writer)) {
          writes |= IsValue(out) && g_.values[out].storage == value.storage;
        }
      }
      if (writes) rewritten_[value.producer].push_back(static_cast<ValueId>(v));
    }
  }

  absl::Status Operands(NodeId n) {
    const Node& node = g_.nodes[n];
    if (node.op == nullptr) return Fault(At(n), "it has no op");
    const uint64_t end = uint64_t{node.first} + node.num_in + node.num_out + node.num_saved;
    if (end > g_.ids.size()) return Fault(At(n), "its operands lie outside the id table");
    if (node.scope < 0 || node.scope >= static_cast<ScopeId>(g_.scopes.size())) {
      return Fault(At(n), absl::StrCat("scope ", node.scope, " does not exist"));
    }
    if (node.foreign < kNone || node.foreign >= static_cast<int32_t>(g_.foreign.size())) {
      return Fault(At(n), "its declaration does not exist");
    }
    for (ValueId v : g_.in(node)) {
      if (!IsValue(v)) return Fault(At(n), absl::StrCat("input %", v, " does not exist"));
      if (!defined_[v])
        return Fault(At(n), absl::StrCat("input %", v, " is used before it is made"));
    }
    for (ValueId v : g_.out(node)) {
      if (!IsValue(v)) return Fault(At(n), absl::StrCat("output %", v, " does not exist"));
      if (g_.values[v].producer != n) {
        return Fault(At(n), absl::StrCat("output %", v, " names node ", g_.values[v].producer,
                                         " as its producer"));
      }
      if (defined_[v]) return Fault(At(n), absl::StrCat("output %", v, " is made twice"));
      defined_[v] = true;
    }
    for (ValueId v : rewritten_[n]) defined_[v] = true;
    for (ValueId v : g_.saved(node)) {
      const auto in = g_.in(node), out = g_.out(node);
      if (std::find(in.begin(), in.end(), v) == in.end() &&
          std::find(out.begin(), out.end(), v) == out.end()) {
        return Fault(At(n),
                     absl::StrCat("saves %", v, ", which is neither its input nor its output"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Specs(NodeId n) const {
    const Node& node = g_.nodes[n];
    if (node.foreign != kNone) return absl::OkStatus();
    std::vector<TensorSpec> in;
    for (ValueId v : g_.in(node)) in.push_back(g_.values[v].spec);
    absl::StatusOr<tally::Specs> specs = InferSpecs(*node.op, in, node.attrs);
    if (!specs.ok()) return Fault(At(n), std::string(specs.status().message()));
    if (node.op->kind == OpKind::kUpdate && specs->empty())
      return absl::OkStatus();  // update ops only check
    if (specs->size() != node.num_out) {
      return Fault(At(n),
                   absl::StrCat("has ", node.num_out, " outputs; the op makes ", specs->size()));
    }
    for (size_t i = 0; i < specs->size(); ++i) {
      const TensorSpec& recorded = g_.values[g_.out(node)[i]].spec;
      if (recorded != (*specs)[i]) {
        return Fault(At(n), absl::StrCat("output ", i, " is recorded as ", recorded.ToString(),
                                         "; the op makes ", (*specs)[i].ToString()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Storages(NodeId n) {
    const Node& node = g_.nodes[n];
    const auto in = g_.in(node), out = g_.out(node);
    if (node.op->kind == OpKind::kView) {
      if (in.empty()) return Fault(At(n), "a view of nothing");
      for (ValueId v : out) {
        if (g_.values[v].storage != g_.values[in[0]].storage) {
          return Fault(
              At(n), absl::StrCat("%", v, " is a view but does not share the storage of %", in[0]));
        }
      }
    }
    if (node.op->kind == OpKind::kUpdate) {
      TALLY_RETURN_IF_ERROR(Written(n));
    }
    for (ValueId v : in) TALLY_RETURN_IF_ERROR(Use(n, v, /*made=*/false));
    for (ValueId v : out) TALLY_RETURN_IF_ERROR(Use(n, v, /*made=*/true));
    return absl::OkStatus();
  }

  absl::Status Written(NodeId n) const {
    const Node& node = g_.nodes[n];
    const auto in = g_.in(node), out = g_.out(node);
    size_t next = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!node.op->writes.Contains(static_cast<int>(i))) continue;
      if (next >= out.size()) return Fault(At(n), "writes more inputs than it has outputs");
      const Value &before = g_.values[in[i]], &after = g_.values[out[next]];
      if (after.storage != before.storage) {
        return Fault(At(n), absl::StrCat("output ", next, " is not in the storage of input ", i,
                                         ", which it updates"));
      }
      if (after.version <= before.version) {
        return Fault(At(n), absl::StrCat("updates input ", i, " without a new version"));
      }
      ++next;
    }
    return absl::OkStatus();
  }

  absl::Status Use(NodeId n, ValueId v, bool made) {
    const Value& value = g_.values[v];
    uint32_t& version = version_[value.storage];
    if (made) {
      if (value.version < version) {
        return Fault(At(n),
                     absl::StrCat("makes %", v, " as version ", value.version, " of storage ",
                                  value.storage, ", which already had version ", version));
      }
      version = std::max(version, value.version);
    }
    first_use_[value.storage] = std::min(first_use_[value.storage], n);
    last_use_[value.storage] = n;
    return absl::OkStatus();
  }

  absl::Status Serves(NodeId n) const {
    const Node& node = g_.nodes[n];
    if (node.serves == kNone) return absl::OkStatus();
    if (node.serves < 0 || node.serves >= n) {
      return Fault(At(n), absl::StrCat("serves node ", node.serves, ", which is not before it"));
    }
    const Node& served = g_.nodes[node.serves];
    if (node.phase != Phase::kBackward && node.phase != Phase::kRecompute) {
      return Fault(At(n), absl::StrCat("is ", Name(node.phase), " but serves node ", node.serves));
    }
    const bool second = node.phase == Phase::kBackward && served.phase == Phase::kBackward;
    if (served.phase != Phase::kForward && !second) {
      return Fault(At(n),
                   absl::StrCat("serves node ", node.serves, ", which is ", Name(served.phase)));
    }
    if (node.phase == Phase::kRecompute && served.op != node.op) {
      return Fault(At(n),
                   absl::StrCat("recomputes node ", node.serves, ", which is ", served.op->name));
    }
    return absl::OkStatus();
  }

  absl::Status Events() const {
    enum State : uint8_t { kUnborn, kLive, kFreed };
    std::vector<State> state(g_.storages.size(), kUnborn);
    for (size_t s = 0; s < state.size(); ++s) {
      if (g_.storages[s].resident) state[s] = kLive;
    }
    std::vector<bool> allocated(g_.storages.size(), false);
    NodeId position = 0;
    for (size_t i = 0; i < g_.events.size(); ++i) {
      const StorageEvent& e = g_.events[i];
      const std::string at = absl::StrCat("event ", i);
      if (!IsStorage(e.storage))
        return Fault(at, absl::StrCat("storage ", e.storage, " does not exist"));
      if (e.at < position || e.at > NumNodes())
        return Fault(at, absl::StrCat("position ", e.at, " is out of order"));
      position = e.at;
      if (e.kind == StorageEvent::kAllocate) {
        if (allocated[e.storage] || state[e.storage] == kFreed) {
          return Fault(at, absl::StrCat("storage ", e.storage, " is allocated twice"));
        }
        if (e.at > first_use_[e.storage]) {
          return Fault(at, absl::StrCat("storage ", e.storage, " is allocated after ",
                                        At(first_use_[e.storage]), " used it"));
        }
        allocated[e.storage] = true;
        state[e.storage] = kLive;
      } else {
        if (state[e.storage] == kUnborn)
          return Fault(at, absl::StrCat("storage ", e.storage, " is freed before it is allocated"));
        if (state[e.storage] == kFreed)
          return Fault(at, absl::StrCat("storage ", e.storage, " is freed twice"));
        if (last_use_[e.storage] != kNone && e.at <= last_use_[e.storage]) {
          return Fault(
              At(last_use_[e.storage]),
              absl::StrCat("uses storage ", e.storage, " after it was freed (event ", i, ")"));
        }
        state[e.storage] = kFreed;
      }
    }
    for (size_t s = 0; s < state.size(); ++s) {
      if (state[s] == kUnborn && last_use_[s] != kNone) {
        return Fault(At(last_use_[s]),
                     absl::StrCat("uses storage ", s, ", which is never allocated"));
      }
    }
    return absl::OkStatus();
  }

  const Graph& g_;
  std::vector<bool> defined_;
  std::vector<std::vector<ValueId>> rewritten_;  // per update node
  std::vector<uint32_t> version_;
  std::vector<NodeId> first_use_, last_use_;
};

}  // namespace

absl::Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

}  // namespace tally
