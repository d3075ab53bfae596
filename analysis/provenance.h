// Provenance: which parameter a value is a form of, and which values are the same data.
//
// A value is a *form* of another when it is made from it by views and by copies that change only
// the layout or the dtype (`contiguous`, `cast`). A value that a recompute node made is a form of
// what the forward node made. Linear in the graph.
#ifndef TALLY_ANALYSIS_PROVENANCE_H_
#define TALLY_ANALYSIS_PROVENANCE_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tally/autograd/graph.h"

namespace tally {

class Provenance {
 public:
  explicit Provenance(const Graph& graph);

  // The value that `v` is a form of, followed to its end.
  ValueId root(ValueId v) const { return root_[v]; }
  // The storage of the parameter that `v` is a form of; kNone when there is none.
  StorageId parameter(ValueId v) const { return parameter_[v]; }
  // Distinct elements of the root that `v` shows, at most: the smallest numel on the way, so an
  // expanded row counts once.
  int64_t elements(ValueId v) const { return elements_[v]; }
  // The first value that shows the same elements of the same root (a reshape of a slice is the
  // slice; two equal slices are one).
  ValueId region(ValueId v) const { return region_[v]; }
  // The region that `v`'s region is a strict part of; kNone for a whole root.
  ValueId outer(ValueId v) const { return outer_[region_[v]]; }

 private:
  void Follow(const Graph& graph, const Node& node, int output);

  std::vector<ValueId> root_, region_, outer_;
  std::vector<StorageId> parameter_;
  std::vector<int64_t> elements_;
  absl::flat_hash_map<std::string, ValueId> cuts_;  // a cut in words: the region it gave first
};

// True for ops whose output holds the elements of input 0 in another layout or dtype.
bool IsCopy(const OpDef& op);

// The user's name of a storage, or of a value in it, or "parameter 3" / "%17".
std::string StorageName(const Graph& graph, StorageId storage);
std::string ValueName(const Graph& graph, ValueId value);

}  // namespace tally

#endif  // TALLY_ANALYSIS_PROVENANCE_H_
