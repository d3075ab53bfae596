// Replay: runs nodes of checkpoint scopes again while one Gradient walks down. Of the library.
//
// The walk visits nodes from the last to the first, so it leaves a tree of scopes before it enters
// another: one tree at a time has a plan. A region runs when the first of its values is read, after
// the regions around it that it reads from, and each at most once; what it rebuilds is let go when
// all that read it have.
#ifndef TALLY_AUTOGRAD_REPLAY_H_
#define TALLY_AUTOGRAD_REPLAY_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tally/autograd/checkpoint_tree.h"
#include "tally/autograd/tape.h"

namespace tally {

class Replay {
 public:
  using Reads = std::function<void(NodeId, CheckpointTree::Read)>;

  // `reads`: what gradients of this walk read, by node.
  Replay(Tape& tape, bool retain, bool create_graph, Reads reads)
      : tape_(tape), retain_(retain), create_graph_(create_graph), reads_(std::move(reads)) {}

  // Lets go of what the tape holds for scopes and this walk does not read. Before the walk.
  void FreeUnused();
  // The value `v`, which the gradient of node `n` (in a scope) reads. Recomputes it if it must.
  // Throws Error when something it is made from was written since, or an op gave other specs (with
  // `verify`: other values) than the first time; the message names the node.
  Tensor Read(NodeId n, ValueId v);
  // The gradient of `n` has read everything it reads, or will not run.
  void Done(NodeId n);
  // The walk is over, or out of the tree it was in.
  void Leave();

 private:
  void Enter(CheckpointTree& tree);
  void Rebuild(int32_t region);
  void Run(int32_t region);
  void RunAgain(int32_t region, NodeId n);
  void CheckAgainstFirst(NodeId n, const Node& node, const Tensors& out) const;
  Tensor Take(int32_t region, ValueId v, NodeId reader);
  void Drop(int32_t region, ValueId v);
  std::string Describe(NodeId n) const;

  Tape& tape_;
  const bool retain_;
  const bool create_graph_;
  const Reads reads_;
  CheckpointTree* tree_ = nullptr;
  RecomputePlan plan_;
  std::vector<bool> ran_;  // per region
  absl::flat_hash_map<std::pair<int32_t, ValueId>, Tensor> rebuilt_;
};

}  // namespace tally

#endif  // TALLY_AUTOGRAD_REPLAY_H_
