// Verify: is a graph a record that could have happened? Run before any analysis of a graph that
// came from a file, and by tests.
#ifndef TALLY_ANALYSIS_VERIFY_H_
#define TALLY_ANALYSIS_VERIFY_H_

#include "absl/status/status.h"
#include "tally/autograd/graph.h"

namespace tally {

// Checks, in this order, and names the first node, value, storage or event at fault:
//   every id is in range; all storages together have at most 2^63-1 bytes; scopes are a tree whose
//   parents come first a value is made once, before it is used, by the node it names as producer
//   (an update also makes the new values of other views of what it wrote) residuals are among the
//   node's inputs and outputs `infer` gives the recorded specs (not for ops unknown to this
//   program) a view shares the storage of its input 0; an update's outputs are its written inputs
//   versions of a storage never go down, and grow by every update
//   a backward node serves an earlier node, forward or (double backward) backward; a recompute
//   node serves an earlier forward node of the same op
//   storages are allocated once, before use, not used after they are freed, and freed at most once
// kInvalidArgument on the first that fails.
absl::Status Verify(const Graph& graph);

}  // namespace tally

#endif  // TALLY_ANALYSIS_VERIFY_H_
