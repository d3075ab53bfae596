// What a checkpointed record ran a second time.
#ifndef TALLY_TESTS_AUTOGRAD_RAN_AGAIN_H_
#define TALLY_TESTS_AUTOGRAD_RAN_AGAIN_H_

#include <string>
#include <vector>

#include "tally/autograd/graph.h"

namespace tally {

// Names of the ops of recompute nodes, views left out, in order.
inline std::vector<std::string> RanAgain(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kRecompute && node.op->kind != OpKind::kView) {
      ops.push_back(node.op->name);
    }
  }
  return ops;
}

}  // namespace tally

#endif  // TALLY_TESTS_AUTOGRAD_RAN_AGAIN_H_
