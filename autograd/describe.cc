#include "tally/autograd/describe.h"

#include "absl/strings/str_cat.h"

namespace tally {

std::string DescribeNode(const Graph& graph, NodeId n) {
  const Node& node = graph.nodes[n];
  const std::string scope = graph.ScopePath(node.scope);
  return absl::StrCat("node ", n, " (", node.op->name, scope.empty() ? "" : " in ", scope, ")");
}

}  // namespace tally
