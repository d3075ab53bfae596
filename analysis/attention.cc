#include "tally/analysis/attention.h"

#include "absl/container/flat_hash_map.h"
#include "tally/ops/attention_mask.h"
#include "tally/ops/softmax.h"

namespace tally {
namespace {

class Attentions {
 public:
  Attentions(const Graph& graph, const SplitProof& proof)
      : g_(graph), softmax_(graph.nodes.size(), kNone) {
    std::vector<bool> activation(graph.nodes.size(), false);
    for (const OtherContraction& c : proof.activations) activation[c.node] = true;
    FindSoftmaxes(activation);
  }

  AttentionReport Run() const {
    AttentionReport report;
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes.size()); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward && node.phase != Phase::kBackward) continue;
      AttentionCounts counts;
      if (!CountNode(n, counts)) continue;
      AttentionCounts& sum = node.phase == Phase::kForward ? report.forward : report.backward;
      sum.nominal += counts.nominal;
      sum.other += counts.other;
      report.nodes.push_back({n, counts});
    }
    return report;
  }

 private:
  // Follows values that have the elements of a contraction's product, or of a softmax, one by one.
  void FindSoftmaxes(const std::vector<bool>& activation) {
    std::vector<NodeId> product(g_.values.size(), kNone);  // the contraction it comes from
    std::vector<NodeId> weights(g_.values.size(), kNone);  // the softmax it comes from
    for (NodeId n = 0; n < static_cast<NodeId>(g_.nodes.size()); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward || node.num_out == 0) continue;
      const ValueId out = g_.out(node)[0];
      if (activation[n]) {
        product[out] = n;
        for (ValueId v : g_.in(node)) {
          if (weights[v] != kNone) softmax_[n] = weights[v];
        }
      } else if (node.op == &kSoftmax) {
        const ValueId x = g_.in(node)[0];
        if (g_.values[x].spec.rank() < 2 || product[x] == kNone) continue;
        softmax_[product[x]] = n;
        weights[out] = n;
      } else if (node.num_in > 0 && g_.numel(g_.in(node)[0]) == g_.numel(out)) {
        product[out] = product[g_.in(node)[0]];
        weights[out] = weights[g_.in(node)[0]];
      }
    }
  }

  bool CountNode(NodeId n, AttentionCounts& counts) const {
    const Node& node = g_.nodes[n];
    if (node.foreign == kNone && node.op->masked != nullptr) {
      counts.nominal = CostOf(g_, node).matmul;
      counts.other = node.op->masked(NodeCall(g_, node).call());
      return true;
    }
    const NodeId forward = node.phase == Phase::kForward ? n : node.serves;
    if (forward == kNone || softmax_[forward] == kNone) return false;
    counts.nominal = node.op->kind == OpKind::kView ? Count(0) : CostOf(g_, node).matmul;
    if (counts.nominal == 0) return false;
    counts.other = OfComposition(g_.nodes[softmax_[forward]], counts.nominal);
    return true;
  }

  // A product of every query with every key costs the same for each pair.
  MaskedCounts OfComposition(const Node& softmax, Count flops) const {
    const SoftmaxAttrs& attrs = softmax.attrs.As<SoftmaxAttrs>();
    const Shape& shape = g_.values[g_.in(softmax)[0]].spec.shape;
    const int64_t queries = shape[-2], keys = shape[-1];
    const AttentionMask mask{attrs.causal, attrs.window, attrs.documents};
    const Count pair = flops / FullPairs(queries, keys);
    return {.full = flops,
            .causal_half = pair * TwiceHalfPairs(mask, queries, keys) / 2,
            .causal_exact = pair * ExactPairs(mask, queries, keys),
            .executed = flops};
  }

  const Graph& g_;
  std::vector<NodeId> softmax_;  // per forward contraction: the softmax beside it
};

}  // namespace

AttentionReport AnalyzeAttention(const Graph& graph, const SplitProof& proof) {
  return Attentions(graph, proof).Run();
}

}  // namespace tally
