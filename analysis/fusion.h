// FuseElementwise: which nodes a compiler would run as one kernel, and what then moves.
//
// Fused are nodes of elementwise ops (unary, binary, gated, select, cast, dropout, in-place
// updates, optimizer steps) and of ops on rows (softmax, layer norm, rms norm and their gradients,
// where the rows are the last axis), each joined to the nodes that made what it reads, as long as
//   both work on as many elements, and on rows of one length where both work on rows;
//   between them lie only views that keep the order of elements (reshape, squeeze, unsqueeze);
//   nothing outside the kernel reads from it before its last node, or writes what it reads: the
//   kernel can run as a whole where its last node stands.
// Contractions, look-ups, layout copies, reductions of other axes and ops unknown to this program
// are kernels of one node, and so is every node without such a neighbour.
//
// A fused kernel reads each value from outside once and writes each of its own once if a node
// outside reads it, a gradient keeps it (saved), or it is alive at the end; what only the kernel
// itself reads never reaches memory. It does all the FLOPs of its nodes.
#ifndef TALLY_ANALYSIS_FUSION_H_
#define TALLY_ANALYSIS_FUSION_H_

#include <vector>

#include "tally/analysis/cost_report.h"
#include "tally/autograd/graph.h"

namespace tally {

struct FusedKernel {
  std::vector<NodeId> nodes;  // ascending; more than one
  CostLine cost;              // of the kernel; `nodes` counts its nodes
  Count bytes_apart = 0;      // what they move as nodes of their own
};

struct FusionReport {
  std::vector<FusedKernel> kernels;  // in order of their last nodes
  std::vector<int32_t> kernel_of;    // per node: index into kernels; kNone: on its own
  int64_t fused_nodes = 0;
  Count bytes_saved = 0;
};

// n log n in the graph. `graph` must pass Verify.
FusionReport FuseElementwise(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_FUSION_H_
