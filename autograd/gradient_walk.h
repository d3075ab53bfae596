// GradientWalk: one Gradient of a tape. Of the library.
#ifndef TALLY_AUTOGRAD_GRADIENT_WALK_H_
#define TALLY_AUTOGRAD_GRADIENT_WALK_H_

#include <string>
#include <utility>
#include <vector>

#include "tally/autograd/replay.h"
#include "tally/autograd/tape.h"

namespace tally {

class GradientWalk {
 public:
  GradientWalk(Tape& tape, const GradientOptions& options)
      : tape_(tape),
        retain_(options.retain || options.create_graph),
        create_graph_(options.create_graph),
        dtype_(options.dtype),
        saved_tracking_(tape.tracking_),
        saved_scope_(CurrentContext().scope),
        replay_(tape, retain_, create_graph_,
                [this](NodeId n, CheckpointTree::Read read) { ForEachReadOf(n, read); }) {}
  ~GradientWalk() {
    tape_.tracking_ = saved_tracking_;
    CurrentContext().scope = saved_scope_;
  }

  Tensors Run(const Tensor& loss, absl::Span<const Tensor> wrt, const Tensor& seed);

 private:
  const Graph& graph() const { return tape_.graph_; }
  std::string Describe(NodeId n) const;
  void MarkActive(ValueId loss, absl::Span<const ValueId> wrt);
  void ListCompletions(ValueId loss, absl::Span<const ValueId> wrt);
  void CastComplete(NodeId n);
  void FreeDeadBranches();
  // What the rules that run for this node read.
  ReadSet ReadsOf(const Node& node) const;
  void ForEachReadOf(NodeId n, CheckpointTree::Read read) const;
  bool IsActive(ValueId v) const {
    const ValueId o = tape_.OriginalOf(v);
    return o < static_cast<ValueId>(active_.size()) && active_[o] != 0;
  }
  static void CheckSeed(const Tensor& loss, const Tensor& seed);
  void Walk(NodeId from);
  bool TakeCotangents(const Node& node);
  void LoadResiduals(NodeId n, const Node& node);
  void RunRules(NodeId n, const Node& node);
  void RunRule(NodeId n, const Node& node, const GradRule& rule, GradArgs::Data& data);
  void CheckResult(const Tensor& g, ValueId v, NodeId n) const;
  void Accumulate(ValueId v, Tensor g);
  Tensor Owned(Tensor g, const Tensor& of) const;
  TensorSpec SpecOf(const Tensor& of) const;

  Tape& tape_;
  const bool retain_;
  const bool create_graph_;
  const std::optional<DType> dtype_;
  const bool saved_tracking_;
  const ScopeId saved_scope_;
  // Per value below the loss: on the way from the loss to something asked for.
  std::vector<uint8_t> wanted_, active_;
  std::vector<uint8_t> asked_;
  std::vector<Tensor> cotangents_;
  // Where a dtype is asked for: the nodes after which the gradient of a value is complete, the next
  // one last.
  std::vector<std::pair<NodeId, ValueId>> complete_;
  absl::InlinedVector<Tensor, 8> in_, out_, dy_;
  absl::InlinedVector<bool, 8> needs_;
  Replay replay_;
};

}  // namespace tally

#endif  // TALLY_AUTOGRAD_GRADIENT_WALK_H_
