// Flow: what leads to a loss, what needs a gradient, and how many rows the loss has.
#ifndef TALLY_ANALYSIS_FLOW_H_
#define TALLY_ANALYSIS_FLOW_H_

#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

struct LossRows {
  int64_t rows = 0;
  std::string origin;  // in words: "rows of cross_entropy's input f32[1024,50257] (node 211)"
};

struct Flow {
  bool has_backward = false;
  std::vector<ValueId>
      losses;  // differentiated and with no differentiated successor; Graph::loss first
  std::vector<bool> on_path;         // per value: leads to a loss
  std::vector<bool> needs_gradient;  // per value: depends on a value whose gradient was asked for
  std::vector<bool> asked;           // per storage: gradients were asked for a value in it
  std::vector<bool> watched;         // per storage
};

// Linear in the graph.
Flow TraceFlow(const Graph& graph);

// Tokens: rows of the values that the model marked as tokens; where it marked none, rows of the
// loss. From the loss the scalars are followed back to the first op that reads
// more than one element; its first input [.., C] has numel / C rows ([n]: n). Micro-batches, that
// is further losses whose rows are read by the same op, add up. Without a loss: the rows of the
// last weight contraction, `fallback`.
LossRows CountLossRows(const Graph& graph, const Flow& flow, NodeId fallback_node,
                       int64_t fallback_rows);

}  // namespace tally

#endif  // TALLY_ANALYSIS_FLOW_H_
