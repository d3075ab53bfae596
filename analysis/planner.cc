#include "tally/analysis/planner.h"

namespace tally {

double NodeCosts::Of(const std::vector<NodeId>& nodes) const {
  double sum = 0;
  for (const NodeId n : nodes) sum += of[n];
  return sum;
}

NodeCosts FlopCosts(const Graph& graph) {
  NodeCosts costs;
  costs.of.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    const Cost cost = node.op->kind == OpKind::kView ? Cost{} : CostOf(graph, node);
    costs.of.push_back(static_cast<double>(cost.matmul + cost.other + cost.transcendental));
  }
  return costs;
}

double ExtraCost(const Graph& graph, const Plan& plan, const NodeCosts& costs) {
  return costs.Of(RerunsOf(graph, plan));
}

}  // namespace tally
