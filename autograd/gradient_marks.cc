// What of the record one Gradient walks over, and what it reads there.
#include <algorithm>

#include "tally/autograd/gradient_walk.h"
#include "tally/autograd/read_sets.h"

namespace tally {

// wanted: something asked for lies below. active: wanted, and the loss depends on it.
void GradientWalk::MarkActive(ValueId loss, absl::Span<const ValueId> wrt) {
  wanted_.assign(loss + 1, 0);
  active_.assign(loss + 1, 0);
  asked_.assign(loss + 1, 0);
  NodeId first = graph().values[loss].producer + 1;
  for (ValueId v : wrt) {
    if (v > loss) continue;
    wanted_[v] = asked_[v] = 1;
    // A leaf may appear before its first reader; a made value's readers come after its producer.
    first =
        graph().values[v].producer == kNone ? 0 : std::min(first, graph().values[v].producer + 1);
  }
  for (NodeId n = first; n <= graph().values[loss].producer; ++n) {
    if (!tape_.states_[n].needs) continue;
    const Node& node = graph().nodes[n];
    const absl::Span<const ValueId> in = graph().in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      if (node.op->no_gradient.Contains(static_cast<int>(i))) continue;
      if (!wanted_[tape_.OriginalOf(in[i])]) continue;
      for (ValueId o : graph().out(node)) {
        if (o <= loss && tape_.needs_[o]) wanted_[o] = 1;
      }
      break;
    }
  }
  active_[loss] = wanted_[loss];
  for (NodeId n = graph().values[loss].producer; n >= 0; --n) {
    if (!tape_.states_[n].needs) continue;
    const Node& node = graph().nodes[n];
    bool reached = false;
    for (ValueId o : graph().out(node)) reached |= o <= loss && active_[o];
    if (!reached) continue;
    const absl::Span<const ValueId> in = graph().in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId v = tape_.OriginalOf(in[i]);
      if (wanted_[v] && !node.op->no_gradient.Contains(static_cast<int>(i))) active_[v] = 1;
    }
  }
}

// Complete: no node below adds to it, and the one that made its value has taken it in the value's
// own dtype.
void GradientWalk::ListCompletions(ValueId loss, absl::Span<const ValueId> wrt) {
  std::vector<NodeId> at(loss + 1, kNone);
  for (NodeId n = graph().values[loss].producer; n >= 0; --n) {
    if (!tape_.states_[n].needs) continue;
    const Node& node = graph().nodes[n];
    bool reached = false;
    for (ValueId o : graph().out(node)) {
      if (o > loss || !active_[o]) continue;
      reached = true;
      if (asked_[o]) at[o] = n;
    }
    if (!reached) continue;
    const absl::Span<const ValueId> in = graph().in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId v = tape_.OriginalOf(in[i]);
      if (v > loss || !asked_[v] || !active_[v]) continue;
      if (!node.op->no_gradient.Contains(static_cast<int>(i))) at[v] = n;
    }
  }
  for (ValueId v : wrt) {
    if (v > loss || !asked_[v] || at[v] == kNone) continue;
    if (graph().values[v].spec.dtype != *dtype_) complete_.emplace_back(at[v], v);
  }
  std::sort(complete_.begin(), complete_.end());
  complete_.erase(std::unique(complete_.begin(), complete_.end()), complete_.end());
}

void GradientWalk::FreeDeadBranches() {
  for (NodeId n = 0; n < static_cast<NodeId>(graph().nodes.size()); ++n) {
    const Tape::NodeState& state = tape_.states_[n];
    if (!state.needs || state.released) continue;
    const Node& node = graph().nodes[n];
    bool leads = false;
    for (ValueId o : graph().out(node)) leads |= IsActive(o);
    if (!leads) tape_.ReleaseResiduals(n);
  }
  replay_.FreeUnused();
}

ReadSet GradientWalk::ReadsOf(const Node& node) const {
  ReadSet reads;
  const absl::Span<const ValueId> in = graph().in(node);
  for (const GradRule& rule : node.op->grads) {
    if (rule.fn == nullptr) break;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!rule.of.Contains(static_cast<int>(i)) || !IsActive(in[i])) continue;
      reads = reads | rule.reads;
      break;
    }
  }
  return reads;
}

void GradientWalk::ForEachReadOf(NodeId n, CheckpointTree::Read read) const {
  const Tape::NodeState& state = tape_.states_[n];
  if (!state.needs || state.released) return;
  const Node& node = graph().nodes[n];
  bool leads = false;
  for (ValueId o : graph().out(node)) leads |= IsActive(o);
  if (leads) ForEachRead(graph(), node, ReadsOf(node), read);
}

}  // namespace tally
