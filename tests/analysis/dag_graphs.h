// Hand-made graphs that are no chains, for tests of planners of whole graphs.
//
// Sizes in units of kUnit bytes; costs as told, everything else is free. Backward runs the forward
// nodes in reverse: each reads the gradient of its result and what it saves, and makes a gradient,
// as large as the value, of each thing it reads. The gradient of a value that several nodes read is
// accumulated in place, by the node that adds to it. The result and its gradient live at once.
#ifndef TALLY_TESTS_ANALYSIS_DAG_GRAPHS_H_
#define TALLY_TESTS_ANALYSIS_DAG_GRAPHS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph_builder.h"
#include "tally/analysis/planner.h"

namespace tally {

// Writes its first input in place.
inline const OpDef kAccumulate = {.name = "accumulate",
                                  .kind = OpKind::kUpdate,
                                  .infer = UnitInfer,
                                  .cost = UnitCost,
                                  .writes = {0}};

class DagBuilder {
 public:
  static constexpr int64_t kUnit = 256;  // bytes

  // `accumulate`: in place; else a sum is a new value (for the oracle, which knows no updates).
  explicit DagBuilder(bool accumulate = true) : accumulate_(accumulate) {}

  ValueId Input(int64_t units) {
    const ValueId v = Storage(units, kNone);
    g_.storages.back().resident = true;
    g_.storages.back().origin = Origin::kInput;
    pinned_.push_back(v);
    return v;
  }

  struct With {
    double cost = 1;
    std::vector<ValueId> saves;  // of what it reads
    bool saves_out = false;
  };
  ValueId Forward(const std::vector<ValueId>& in, int64_t units, const With& with) {
    const NodeId node = AddNode(tally::kUnit, in, {units}, Phase::kForward, kNone);
    const ValueId out = g_.out(g_.nodes[node])[0];
    costs_.of[node] = with.cost;
    forward_.push_back({node, in, out, with.saves});
    if (with.saves_out) forward_.back().saves.push_back(out);
    return out;
  }

  // Ends the record with the gradients of `out`.
  Graph Finish(ValueId out, NodeCosts* costs) {
    std::vector<ValueId> gradient(g_.values.size(), kNone);
    g_.loss = out;
    // It exists beside the result.
    gradient[out] = Out(AddNode(tally::kUnit, {out}, {Units(out)}, Phase::kBackward, kNone), 0);
    for (size_t i = forward_.size(); i-- > 0;) {
      const Made& made = forward_[i];
      if (gradient[made.out] == kNone) continue;
      std::vector<ValueId> in = made.saves;
      in.push_back(gradient[made.out]);
      std::vector<int64_t> fresh;
      std::vector<ValueId> fresh_of, sum_into;
      for (ValueId v : made.in) {
        if (gradient[v] == kNone) {
          fresh.push_back(Units(v));
          fresh_of.push_back(v);
        } else {
          sum_into.push_back(v);
        }
      }
      if (accumulate_) {
        if (!fresh.empty()) {
          const NodeId node = AddNode(tally::kUnit, in, fresh, Phase::kBackward, made.node);
          for (size_t k = 0; k < fresh.size(); ++k) gradient[fresh_of[k]] = Out(node, k);
        }
        for (ValueId v : sum_into) {
          std::vector<ValueId> written = {gradient[v]};
          written.insert(written.end(), in.begin(), in.end());
          gradient[v] = Update(written, made.node);
        }
        continue;
      }
      for (ValueId v : sum_into) fresh.push_back(Units(v));
      const NodeId node = AddNode(tally::kUnit, in, fresh, Phase::kBackward, made.node);
      for (size_t k = 0; k < fresh_of.size(); ++k) gradient[fresh_of[k]] = Out(node, k);
      for (size_t k = 0; k < sum_into.size(); ++k) {
        const ValueId v = sum_into[k];
        const NodeId sum = AddNode(tally::kUnit, {gradient[v], Out(node, fresh_of.size() + k)},
                                   {Units(v)}, Phase::kBackward, made.node);
        gradient[v] = Out(sum, 0);
      }
    }
    // The record kept everything to its end; inputs outlive it.
    for (size_t s = 0; s < g_.storages.size(); ++s) {
      if (!g_.storages[s].resident)
        g_.events.push_back(
            {StorageEvent::kFree, static_cast<StorageId>(s), static_cast<NodeId>(g_.nodes.size())});
    }
    if (costs != nullptr) *costs = costs_;
    return g_;
  }

 private:
  struct Made {
    NodeId node;
    std::vector<ValueId> in;
    ValueId out;
    std::vector<ValueId> saves;
  };

  int64_t Units(ValueId v) const { return g_.values[v].spec.bytes() / kUnit; }
  ValueId Out(NodeId node, size_t i) const { return g_.out(g_.nodes[node])[i]; }

  ValueId Storage(int64_t units, NodeId producer) {
    if (g_.scopes.empty()) g_.scopes.push_back({});
    Value value;
    value.spec = {DType::kF32, {units * kUnit / 4}};
    value.storage = static_cast<StorageId>(g_.storages.size());
    value.producer = producer;
    g_.storages.push_back({value.spec.bytes(), Origin::kActivation});
    g_.values.push_back(value);
    g_.events.push_back(
        {StorageEvent::kAllocate, value.storage, producer == kNone ? NodeId{0} : producer});
    return static_cast<ValueId>(g_.values.size()) - 1;
  }

  NodeId Push(const OpDef& op, const std::vector<ValueId>& in, const std::vector<ValueId>& out,
              Phase phase, NodeId serves) {
    Node node;
    node.op = &op;
    node.first = static_cast<uint32_t>(g_.ids.size());
    node.num_in = static_cast<uint16_t>(in.size());
    node.num_out = static_cast<uint16_t>(out.size());
    node.phase = phase;
    node.serves = serves;
    g_.ids.insert(g_.ids.end(), in.begin(), in.end());
    g_.ids.insert(g_.ids.end(), out.begin(), out.end());
    g_.nodes.push_back(node);
    costs_.of.push_back(0);
    return static_cast<NodeId>(g_.nodes.size()) - 1;
  }

  NodeId AddNode(const OpDef& op, const std::vector<ValueId>& in, const std::vector<int64_t>& units,
                 Phase phase, NodeId serves) {
    std::vector<ValueId> out;
    for (int64_t u : units) out.push_back(Storage(u, static_cast<NodeId>(g_.nodes.size())));
    return Push(op, in, out, phase, serves);
  }

  ValueId Update(const std::vector<ValueId>& in, NodeId serves) {
    Value value = g_.values[in[0]];
    value.producer = static_cast<NodeId>(g_.nodes.size());
    ++value.version;
    g_.values.push_back(value);
    const ValueId out = static_cast<ValueId>(g_.values.size()) - 1;
    Push(kAccumulate, in, {out}, Phase::kBackward, serves);
    return out;
  }

  const bool accumulate_;
  Graph g_;
  NodeCosts costs_;
  std::vector<Made> forward_;
  std::vector<ValueId> pinned_;
};

// x; a = f(x), b = f(a), r = b + x; c = f(r), d = f(c), q = d + r; o = f(q). All of one unit; f
// costs 1 and saves its input, + is free and saves nothing.
inline Graph TwoResidualBlocks(NodeCosts* costs) {
  DagBuilder b;
  const ValueId x = b.Input(1);
  const ValueId a = b.Forward({x}, 1, {.saves = {x}});
  const ValueId y = b.Forward({a}, 1, {.saves = {a}});
  const ValueId r = b.Forward({y, x}, 1, {.cost = 0});
  const ValueId c = b.Forward({r}, 1, {.saves = {r}});
  const ValueId d = b.Forward({c}, 1, {.saves = {c}});
  const ValueId q = b.Forward({d, r}, 1, {.cost = 0});
  return b.Finish(b.Forward({q}, 1, {.saves = {q}}), costs);
}

// x[1]; a = f(x)[3] and b = f(x)[3], both saved with x; m = a * b [1] saves both; o = f(m)[1].
inline Graph Diamond(NodeCosts* costs) {
  DagBuilder b;
  const ValueId x = b.Input(1);
  const ValueId left = b.Forward({x}, 3, {.saves = {x}, .saves_out = true});
  const ValueId right = b.Forward({x}, 3, {.saves = {x}, .saves_out = true});
  const ValueId m = b.Forward({left, right}, 1, {.saves = {left, right}});
  return b.Finish(b.Forward({m}, 1, {.saves = {m}}), costs);
}

// Checkmate's unit graph of n: nodes 0..2n, all of one unit and cost; node k reads node k-1, and
// backward node 2n-i reads forward node i too. Nothing is there from the start or stays.
inline Graph CheckmateLinear(int n, NodeCosts* costs) {
  GraphBuilder b;
  const TensorSpec unit{DType::kF32, {DagBuilder::kUnit / 4}};
  std::vector<ValueId> made;
  for (int k = 0; k <= 2 * n; ++k) {
    std::vector<ValueId> in;
    if (k > 0) in.push_back(made[k - 1]);
    if (k > n && 2 * n - k != k - 1) in.push_back(made[2 * n - k]);
    const NodeId serves = k > n ? static_cast<NodeId>(2 * n - k) : NodeId{kNone};
    made.push_back(b.Node(kUnit, in, unit,
                          {.phase = k > n ? Phase::kBackward : Phase::kForward, .serves = serves}));
  }
  for (ValueId v : made) b.Free(v);
  costs->of.assign(b.g.nodes.size(), 1);
  return b.g;
}

}  // namespace tally

#endif  // TALLY_TESTS_ANALYSIS_DAG_GRAPHS_H_
