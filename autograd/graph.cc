#include "tally/autograd/graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tally {

const std::string& Graph::name(NameId id) const {
  static const std::string* const kEmpty = new std::string;
  return id == kNone ? *kEmpty : names[id];
}

std::string Graph::ScopePath(ScopeId id) const {
  std::vector<absl::string_view> parts;
  for (ScopeId s = id; s > 0; s = scopes[s].parent) parts.push_back(name(scopes[s].name));
  std::string path;
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
    absl::StrAppend(&path, path.empty() ? "" : "/", *it);
  }
  return path;
}

NodeCall::NodeCall(const Graph& graph, const Node& node) : op_(node.op), attrs_(&node.attrs) {
  for (ValueId v : graph.in(node)) in_.push_back(&graph.values[v].spec);
  for (ValueId v : graph.out(node)) out_.push_back(&graph.values[v].spec);
}

Cost CostOf(const Graph& graph, const Node& node) {
  if (node.foreign != kNone) return graph.foreign[node.foreign].cost;
  if (node.op->kind == OpKind::kView) return Cost();
  return node.op->cost(NodeCall(graph, node).call());
}

}  // namespace tally
