// The reconciliation of a split with 6·N·D. Part of ProveSplit.
#ifndef TALLY_ANALYSIS_RECONCILE_H_
#define TALLY_ANALYSIS_RECONCILE_H_

#include "tally/analysis/split.h"

namespace tally {

// `proof` has everything but its reconciliations. With `with_embedding` N counts every parameter,
// else only those that no look-up reads.
Reconciliation Reconcile(const Graph& graph, const SplitProof& proof, bool with_embedding);

}  // namespace tally

#endif  // TALLY_ANALYSIS_RECONCILE_H_
