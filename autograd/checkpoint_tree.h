// CheckpointTree: one outermost checkpoint scope of a tape with the scopes inside it. Of the
// library: users see autograd/checkpoint.h.
//
// Regions are numbered from 1 in the order they open; 0 is all that is outside. A value has the
// LEVEL of the innermost region around its producer that does not save it, 0 for values that are
// kept: inputs, results of updates, values made outside, values that every region around saves.
// What a node reads is rebuilt by the innermost region that holds both the node and the value's
// level; where that is 0 the tape holds the tensor.
#ifndef TALLY_AUTOGRAD_CHECKPOINT_TREE_H_
#define TALLY_AUTOGRAD_CHECKPOINT_TREE_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tally/autograd/checkpoint.h"
#include "tally/autograd/graph.h"

namespace tally {

// What running nodes of a tree again takes and gives.
struct RecomputePlan {
  std::vector<std::vector<NodeId>> nodes;  // per region: which it runs again, ascending
  // How often a value is read of those that a region rebuilds, or (region 0) that the tape holds:
  // by replayed nodes and by gradients.
  absl::flat_hash_map<std::pair<int32_t, ValueId>, int32_t> uses;
};

class CheckpointTree {
 public:
  struct Held {
    Tensor tensor;
    uint32_t version = 0;
  };
  // The values that the gradient of a node reads: calls `read` with each.
  using Read = absl::FunctionRef<void(ValueId)>;
  using Reads = absl::FunctionRef<void(NodeId, Read)>;

  explicit CheckpointTree(const Graph& graph);

  void Open(const Graph& graph, const CheckpointOptions& options);
  // Leaves the innermost open region. True when it was the outermost.
  bool Close(const Graph& graph);

  // A forward node that is being recorded. `kept`: what its gradient may read. Returns what a
  // policy threw, null if nothing; the node is then in its region and saves nothing.
  std::exception_ptr OnNode(const Graph& graph, const Node& node, NodeId id,
                            absl::Span<const Tensor* const> in, absl::Span<Tensor> out,
                            ReadSet kept);
  void OnName(ValueId value, const Tensor& tensor, absl::string_view name);

  // Throws Error when a name of save_named was given to no value in any scope that lists it.
  static void CheckNames(absl::Span<const std::unique_ptr<CheckpointTree>> trees);

  // Which nodes must run again so that gradients can read `reads`. O(nodes x depth).
  RecomputePlan Plan(const Graph& graph, Reads reads) const;
  // Lets go of what no plan entry of region 0 reads.
  void Keep(const RecomputePlan& plan);

  NodeId first() const { return first_node_; }
  NodeId end() const { return first_node_ + static_cast<NodeId>(regions_of_nodes_.size()); }
  int32_t num_regions() const { return static_cast<int32_t>(regions_.size()); }
  // 0 for a node that is not the tree's, or not of forward.
  int32_t RegionOf(NodeId node) const;
  int32_t ParentOf(int32_t region) const { return regions_[region].parent; }
  int32_t LevelOf(ValueId value) const;
  // The innermost region that holds both.
  int32_t Common(int32_t a, int32_t b) const;
  int32_t RegionThatRebuilds(NodeId node, ValueId value) const {
    return Common(RegionOf(node), LevelOf(value));
  }

  absl::flat_hash_map<ValueId, Held>& held() { return held_; }
  const absl::flat_hash_map<ValueId, Held>& held() const { return held_; }
  // Whether `tensor` has the elements that `value` had when it was first made. True where they were
  // not hashed.
  bool Matches(ValueId value, const Tensor& tensor) const;

 private:
  struct Region {
    int32_t parent = 0;
    int32_t last = 0;  // the greatest inside, itself included
    NodeId first = 0, end = 0;
    CheckpointOptions options;
  };

  bool Holds(int32_t outer, int32_t inner) const {
    return outer == 0 || (outer <= inner && inner <= regions_[outer].last);
  }
  void SetLevel(ValueId value, int32_t level);
  void Hold(ValueId value, const Tensor& tensor);
  int32_t LevelOfOutput(const Graph& graph, const Node& node) const;

  std::vector<Region> regions_;  // [0]: outside
  int32_t current_ = 0;
  NodeId first_node_ = 0;
  ValueId first_value_ = 0;
  std::vector<int32_t> regions_of_nodes_;  // from first_node_
  std::vector<int32_t> levels_;            // from first_value_
  absl::flat_hash_map<ValueId, Held> held_;
  absl::flat_hash_map<ValueId, uint64_t> hashes_;
  absl::flat_hash_set<std::string> met_;  // names that a scope lists and a value inside got
};

}  // namespace tally

#endif  // TALLY_AUTOGRAD_CHECKPOINT_TREE_H_
