#include <cstring>

#include "tally/analysis/cost_report.h"
#include "tally/analysis/provenance.h"
#include "tally/analysis/residuals.h"
#include "tally/io/dot_drawing.h"

namespace tally::dot {
namespace {

// Ops that hand a gradient on: what makes their input makes the gradient.
bool HandsOn(const OpDef& op) {
  return op.kind == OpKind::kView || IsCopy(op) || std::strcmp(op.name, "add") == 0 ||
         std::strcmp(op.name, "add_") == 0;
}

// A backward node makes a parameter's gradient when what it makes goes nowhere else, but through
// sums over uses and micro-batches. Walked from the end, so that readers come before makers.
std::vector<bool> FindWeightGradients(const Graph& graph, const SplitProof& proof) {
  std::vector<bool> result(graph.nodes.size(), false);
  for (const WeightContraction& c : proof.contractions) {
    for (NodeId n : c.weight_grad.nodes) result[n] = true;
  }
  std::vector<bool> toward(graph.values.size(), false), elsewhere(graph.values.size(), false);
  for (size_t i = 0; i < graph.gradients.size(); ++i) {
    const Value& of = graph.values[graph.gradient_of[i]];
    if (graph.storages[of.storage].origin == Origin::kParameter) toward[graph.gradients[i]] = true;
  }
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (node.phase == Phase::kOptimizer) continue;
    if (node.phase == Phase::kBackward) {
      bool any = false, all = true;
      for (ValueId v : graph.out(node)) {
        any |= toward[v];
        all &= !elsewhere[v];
      }
      if (any && all) result[n] = true;
    }
    const bool on = result[n] && HandsOn(*node.op);
    for (ValueId v : graph.in(node)) (on ? toward : elsewhere)[v] = true;
  }
  return result;
}

}  // namespace

Account::Account(const Graph& g)
    : graph(g),
      proof(ProveSplit(g)),
      cost(g.nodes.size()),
      bytes(g.nodes.size(), 0),
      saved(g.nodes.size(), 0),
      weight_grad(FindWeightGradients(g, proof)),
      dx(g.nodes.size(), 0),
      dw(g.nodes.size(), 0) {
  for (size_t n = 0; n < g.nodes.size(); ++n) {
    const Node& node = g.nodes[n];
    if (node.op->kind == OpKind::kView) continue;
    cost[n] = CostOf(g, node);
    bytes[n] = CostLineOf(g, node).bytes();
    if (node.phase == Phase::kBackward && node.serves != kNone) {
      (weight_grad[n] ? dw : dx)[node.serves] += cost[n].total();
    }
  }
  const ResidualReport report = ListResiduals(g);
  retained = report.retained;
  for (const Residual& r : report.residuals) {
    saved[r.from] += r.retained;
    residuals.push_back({r.from, r.producer, r.retained});
  }
}

}  // namespace tally::dot
