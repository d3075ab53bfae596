// Makes small graphs by hand, event by event, for tests of the analyses.
#ifndef TALLY_TESTS_ANALYSIS_GRAPH_BUILDER_H_
#define TALLY_TESTS_ANALYSIS_GRAPH_BUILDER_H_

#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

// The op of hand-made graphs: any inputs, one output; one `other` per output element.
inline absl::Status UnitInfer(const OpCall& call, Specs& out) {
  out.push_back(call.in[0]);
  return absl::OkStatus();
}
inline Cost UnitCost(const OpCall& call) { return {.other = call.out[0].numel()}; }
inline const OpDef kUnit = {.name = "unit", .infer = UnitInfer, .cost = UnitCost};

class GraphBuilder {
 public:
  struct With {
    Phase phase = Phase::kForward;
    NodeId serves = kNone;
    ScopeId scope = 0;
    std::vector<ValueId> saves;
    Origin origin = Origin::kActivation;
  };

  GraphBuilder() { g.scopes.push_back({}); }

  NameId Intern(const std::string& name) {
    g.names.push_back(name);
    return static_cast<NameId>(g.names.size()) - 1;
  }
  ScopeId Scope(const std::string& name, ScopeId parent = 0) {
    g.scopes.push_back({parent, Intern(name)});
    return static_cast<ScopeId>(g.scopes.size()) - 1;
  }
  // A storage that existed before the record.
  ValueId Input(const TensorSpec& spec, Origin origin = Origin::kInput,
                const std::string& name = "") {
    const ValueId v = NewValue(spec, kNone, origin);
    StorageRecord& record = g.storages.back();
    record.resident = true;
    if (!name.empty()) record.name = Intern(name);
    g.events.push_back({StorageEvent::kAllocate, g.values[v].storage, 0});
    return v;
  }
  // One node with one output in a storage of its own.
  ValueId Node(const OpDef& op, const std::vector<ValueId>& in, const TensorSpec& spec,
               const With& with) {
    return Node(op, in, std::vector<TensorSpec>{spec}, with)[0];
  }
  // One node with several outputs, each in a storage of its own.
  std::vector<ValueId> Node(const OpDef& op, const std::vector<ValueId>& in,
                            const std::vector<TensorSpec>& specs, const With& with) {
    const NodeId id = static_cast<NodeId>(g.nodes.size());
    std::vector<ValueId> out;
    for (const TensorSpec& spec : specs) {
      out.push_back(NewValue(spec, id, with.origin));
      g.events.push_back({StorageEvent::kAllocate, g.values[out.back()].storage, id});
    }
    tally::Node node;
    node.op = &op;
    node.first = static_cast<uint32_t>(g.ids.size());
    node.num_in = static_cast<uint16_t>(in.size());
    node.num_out = static_cast<uint16_t>(out.size());
    node.num_saved = static_cast<uint16_t>(with.saves.size());
    node.phase = with.phase;
    node.serves = with.serves;
    node.scope = with.scope;
    g.ids.insert(g.ids.end(), in.begin(), in.end());
    g.ids.insert(g.ids.end(), out.begin(), out.end());
    g.ids.insert(g.ids.end(), with.saves.begin(), with.saves.end());
    g.nodes.push_back(node);
    return out;
  }
  void Free(ValueId v) {
    g.events.push_back(
        {StorageEvent::kFree, g.values[v].storage, static_cast<NodeId>(g.nodes.size())});
  }
  NodeId last() const { return static_cast<NodeId>(g.nodes.size()) - 1; }

  Graph g;

 private:
  ValueId NewValue(const TensorSpec& spec, NodeId producer, Origin origin) {
    g.storages.push_back({spec.bytes(), origin});
    Value value;
    value.spec = spec;
    value.storage = static_cast<StorageId>(g.storages.size()) - 1;
    value.producer = producer;
    g.values.push_back(value);
    return static_cast<ValueId>(g.values.size()) - 1;
  }
};

}  // namespace tally

#endif  // TALLY_TESTS_ANALYSIS_GRAPH_BUILDER_H_
