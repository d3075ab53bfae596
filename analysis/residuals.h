// ListResiduals: what forward keeps for backward, who keeps it, and how long.
//
// Each storage is counted once and whole (`retained`); the part that kept values show is `viewed`.
// Storages that the user made (inputs, masks, targets) count and are also a line of their own;
// parameters and their casts and layout copies do not. In a record with checkpoint scopes what is
// kept to recompute from counts until it was, and what recomputation made from there to its last
// reader.
#ifndef TALLY_ANALYSIS_RESIDUALS_H_
#define TALLY_ANALYSIS_RESIDUALS_H_

#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

struct Residual {
  StorageId storage = kNone;
  ValueId value = kNone;  // the first kept value in it
  int64_t retained = 0;   // bytes of the storage
  int64_t viewed = 0;     // bytes that kept values show
  Origin origin = Origin::kActivation;
  NodeId producer = kNone;     // what made the kept elements, views skipped; kNone: an input
  int output = 0;              // which of its outputs
  std::vector<NodeId> savers;  // forward nodes whose gradient reads it or that run again from it,
                               // and recompute nodes that make it; ascending
  NodeId from = kNone;         // first of them
  NodeId until = kNone;        // last node that serves one of them (of what recomputation made:
                               // that reads it). Without any (a dead branch): the first backward
                               // node after; without backward: the end
};

struct ResidualReport {
  // Lines for the table "kept by": one per producing op and output, in order of appearance. Output
  // 0 of an op that has several is the result proper; the others are its statistics and masks.
  // Inputs are one line each kind: op "" .
  struct OpLine {
    std::string op;
    int output = 0;
    int64_t retained = 0, viewed = 0, storages = 0;
  };

  std::vector<Residual> residuals;  // in order of `from`
  std::vector<OpLine> by_op;
  int64_t retained = 0;  // `saved`: the most kept at any time; for one step, at the end of forward
  int64_t viewed = 0;    // at that time
  int64_t retained_inputs = 0;  // of these: made by the user
  NodeId most_at = kNone;       // the node after which that is

  // Retained bytes of what `op` makes as `output`.
  int64_t RetainedBy(const std::string& op, int output = 0) const;
};

// n log n in the graph.
ResidualReport ListResiduals(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_RESIDUALS_H_
