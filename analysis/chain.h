// The chain of stages of a record: what planners for chains plan over.
//
// Forward is cut into stages so that one storage crosses from each to the next (its boundary). The
// stages are the recorded blocks (FindBlocks), what stands before the first and after the last
// block being a stage of its own; a record without blocks is cut at its articulation points, where
// one storage crosses. Micro-batches are passes: each has its own stages.
//
// Of each storage that forward makes, a stage owns it or it stays:
//   boundary  the one that the next stage reads
//   tape      backward reads it, and of forward only the stage that makes it
//   inner     nothing reads it after its stage
//   constant  everything else: what several stages read (rope tables, masks, skips), results, what
//             an update writes or a node that cannot run again makes. It lives as without a plan,
//             or until the last stage that could read it again.
// Backward is cut where the gradients of a stage begin to read what it owns, or its input.
#ifndef TALLY_ANALYSIS_CHAIN_H_
#define TALLY_ANALYSIS_CHAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tally/analysis/planner.h"
#include "tally/autograd/graph.h"

namespace tally {

struct ChainStage {
  NodeId first = 0, end = 0;            // its forward nodes, as recorded: [first, end)
  NodeId back_first = 0, back_end = 0;  // its backward nodes
  StorageId boundary = kNone;          // its output; kNone when nothing crosses, or a constant does
  std::vector<StorageId> tape, inner;  // ascending
  std::vector<ScopeId> blocks;         // empty: no block (embedding, head, a cut without blocks)
  bool reads_in = false;               // its backward reads the boundary before it
  bool reads_out = false;              // its backward reads its own boundary
};

struct ChainPass {
  std::vector<ChainStage> stages;  // two or more
};

struct LayerChain {
  std::vector<ChainPass> passes;  // one or more
  bool by_blocks = false;         // else by articulation points
  std::string note;               // over what is planned, and how many constants stay, in words
};

// kFailedPrecondition when the record is no chain, saying what of it is not: no backward, a
// checkpointed record, blocks out of order and no articulation points. `most_stages`: neighbours
// are merged until no pass has more. n log n in the graph.
absl::StatusOr<LayerChain> FindChain(const Graph& graph, int most_stages = 1024);

}  // namespace tally

#endif  // TALLY_ANALYSIS_CHAIN_H_
