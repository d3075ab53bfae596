// GraphDot: a graph as Graphviz text, laid out for reading.
//
// Mirror layout: forward runs down the left, gradients run up the right, and what forward keeps for
// backward hangs between them as rungs. Gradient edges are written in forward direction with
// dir=back, so that `dot` ranks both columns alike and draws thousands of nodes in seconds.
// Nodes are n0, n1, ... in execution order (also their SVG ids); each carries op, scope, phase,
// shape, instances, flops_fwd, flops_dx, flops_dw, flops_recompute, flops_optimizer, bytes and
// saved_bytes as attributes of its own, which `dot` ignores and gvpr or networkx can read. Sums of
// them over the nodes are those of the graph, whatever is folded, unless focus or matmul_only
// leave nodes out. With a plan the graph says which, and its peak_bytes, saved_bytes (the most kept
// at once) and flops_recompute are the plan's.
#ifndef TALLY_IO_GRAPH_DOT_H_
#define TALLY_IO_GRAPH_DOT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tally/autograd/graph.h"
#include "tally/autograd/plan.h"

namespace tally {

struct DotOptions {
  enum class Fold : uint8_t {
    kAuto,   // equal sibling scopes become one; optimizer one node; at most 400 nodes
    kNone,   // every node
    kDepth,  // what lies in scopes of `depth` or deeper becomes one node per scope and phase
  };
  std::string title;
  Fold fold = Fold::kAuto;
  int depth = 0;
  // Regular expression (ECMAScript) searched in "scope/op" and in the names of values: only nodes
  // that match, and stubs of their neighbours. "": everything.
  std::string focus;
  bool matmul_only = false;    // contractions; what lies between them is written on the edges
  bool symbolic = false;       // sizes as letters, FLOPs as formulas
  const Plan* plan = nullptr;  // draws what it keeps, drops and runs again
};

// `graph` must pass Verify. The same graph and options give the same bytes. No label is longer than
// 16,000 bytes. Linear in the graph; with matmul_only also in the square of its contractions, up to
// 4,096 of them. kInvalidArgument: `focus` is no regular expression or matches nothing, a negative
// depth, a plan that names nodes the graph does not have.
absl::StatusOr<std::string> GraphDot(const Graph& graph, const DotOptions& options = {});

}  // namespace tally

#endif  // TALLY_IO_GRAPH_DOT_H_
