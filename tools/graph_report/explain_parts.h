// What the explainers of the sections share: an explanation being written, and the words for the
// nodes and storages behind it.
#ifndef TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_PARTS_H_
#define TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_PARTS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tally/tools/graph_report/explain.h"

namespace tally {

class ExplanationParts {
 protected:
  explicit ExplanationParts(const Report& report);

  void Say(const std::string& formula, const std::string& unit = "", bool adds_up = false);
  // "linear, 2·r·|W| = 2·1,024·1,769,472, in h.0/attn"; with the specs of its inputs where it is no
  // weight contraction, or `rows` is false.
  std::string NodeWords(NodeId n, bool rows = true) const;
  std::string StorageWords(StorageId s) const;
  // Parts of nothing are left out.
  void AddNode(NodeId n, Count amount, bool rows = true);
  void AddMatmul(NodeId n);  // with its matmul column
  void AddStorage(StorageId s, Count amount);
  void AddStorages(const std::vector<StorageId>& list);  // with their bytes

  const Report& r_;
  const Graph& g_;
  const SplitProof& p_;
  Explanation e_;

 private:
  absl::flat_hash_map<StorageId, ValueId> first_value_;
  absl::flat_hash_map<NodeId, const WeightContraction*> weight_of_;
};

}  // namespace tally

#endif  // TALLY_TOOLS_GRAPH_REPORT_EXPLAIN_PARTS_H_
