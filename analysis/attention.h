// AnalyzeAttention: the contractions of attention counted in other ways.
//
// Headline counts of attention are nominal (ops/cost.h, ops/attention_mask.h). Beside them stand,
// for the same nodes: every pair of query and key, half of the nominal count where the mask is
// causal, the pairs that the mask lets through, and what the kernels run.
//
// Nodes of attention are those of ops that state such counts themselves (fused attention), and the
// activation contractions on both sides of a softmax over keys: the one whose product it
// normalises, scaled or capped, and the one that reads its result, dropped out or not.
#ifndef TALLY_ANALYSIS_ATTENTION_H_
#define TALLY_ANALYSIS_ATTENTION_H_

#include <vector>

#include "tally/analysis/split.h"
#include "tally/autograd/graph.h"

namespace tally {

struct AttentionCounts {
  Count nominal = 0;  // their matmul column
  MaskedCounts other;
};

struct AttentionReport {
  struct Line {
    NodeId node = kNone;
    AttentionCounts counts;
  };
  std::vector<Line> nodes;  // of the phases forward and backward, ascending
  AttentionCounts forward, backward;

  AttentionCounts total() const {
    AttentionCounts sum = forward;
    sum.nominal += backward.nominal;
    sum.other += backward.other;
    return sum;
  }
};

// Linear in the graph. `proof` is of the same graph.
AttentionReport AnalyzeAttention(const Graph& graph, const SplitProof& proof);

}  // namespace tally

#endif  // TALLY_ANALYSIS_ATTENTION_H_
