// What a tape does at the ends of checkpoint scopes.
#include <algorithm>
#include <memory>

#include "tally/autograd/checkpoint.h"
#include "tally/autograd/checkpoint_tree.h"
#include "tally/autograd/read_sets.h"
#include "tally/autograd/tape.h"

namespace tally {

CheckpointScope::CheckpointScope(const CheckpointOptions& options) {
  Tape* const tape = Tape::OfThread();
  if (tape == nullptr || CurrentContext().recorder != tape) return;
  tape->OpenCheckpoint(options);
  serial_ = tape->serial_;
}

CheckpointScope::~CheckpointScope() {
  if (serial_ == 0) return;
  // The tape may have ended inside.
  Tape* const tape = Tape::OfThread();
  if (tape != nullptr && tape->serial_ == serial_ && tape->open_tree_ != nullptr) {
    tape->CloseCheckpoint();
  }
}

void Tape::OpenCheckpoint(const CheckpointOptions& options) {
  if (open_tree_ == nullptr) {
    trees_.push_back(std::make_unique<CheckpointTree>(graph_));
    open_tree_ = trees_.back().get();
  }
  open_tree_->Open(graph_, options);
}

void Tape::CloseCheckpoint() {
  CheckpointTree& tree = *open_tree_;
  if (!tree.Close(graph_)) return;
  open_tree_ = nullptr;
  const RecomputePlan plan = tree.Plan(graph_, [&](NodeId n, CheckpointTree::Read read) {
    ForEachRead(graph_, graph_.nodes[n], states_[n].kept, read);
  });
  tree.Keep(plan);
  ListSaved(tree, plan);
}

// Saved: what the tree holds of it, for its gradient or for running it again.
void Tape::ListSaved(const CheckpointTree& tree, const RecomputePlan& plan) {
  std::vector<bool> runs_again(tree.end() - tree.first(), false);
  for (const std::vector<NodeId>& nodes : plan.nodes) {
    for (NodeId n : nodes) runs_again[n - tree.first()] = true;
  }
  for (NodeId n = tree.first(); n < tree.end(); ++n) {
    if (tree.RegionOf(n) == 0) continue;
    Node& node = graph_.nodes[n];
    const auto begin = graph_.ids.begin() + node.first + node.num_in + node.num_out;
    const auto save = [&](ValueId v) {
      if (tree.LevelOf(v) != 0 ||
          std::find(begin, begin + node.num_saved, v) != begin + node.num_saved)
        return;
      begin[node.num_saved++] = v;
    };
    ForEachRead(graph_, node, states_[n].kept, save);
    if (!runs_again[n - tree.first()]) continue;
    for (ValueId v : graph_.in(node)) save(v);
  }
}

CheckpointTree* Tape::TreeOf(NodeId node) const {
  if (!states_[node].in_tree) return nullptr;
  const auto after = std::upper_bound(
      trees_.begin(), trees_.end(), node,
      [](NodeId n, const std::unique_ptr<CheckpointTree>& tree) { return n < tree->first(); });
  return (after - 1)->get();
}

}  // namespace tally
