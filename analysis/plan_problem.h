// PlanProblem: a record as planners of whole graphs see it: which storages may be given back and
// made again, who uses them, and what has to stay whatever a plan does.
//
// Planners think in storages: a view costs nothing and is made again with what it shows. The first
// runs of the nodes keep the recorded order, so a moment of a plan is "before the first run of node
// t": position t. Between two first runs forward nodes may run again.
#ifndef TALLY_ANALYSIS_PLAN_PROBLEM_H_
#define TALLY_ANALYSIS_PLAN_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tally/autograd/graph.h"

namespace tally {

// Lists of ids in one array: ids of list i are [i].
class IdLists {
 public:
  explicit IdLists(const std::vector<std::vector<int32_t>>& lists);
  absl::Span<const int32_t> operator[](size_t i) const {
    return absl::MakeConstSpan(ids_).subspan(start_[i], start_[i + 1] - start_[i]);
  }
  size_t size() const { return start_.size() - 1; }

 private:
  std::vector<uint32_t> start_;
  std::vector<int32_t> ids_;
};

class PlanProblem {
 public:
  // A storage stays from the first run of `from` on, through that of `until`, in every plan.
  struct Stay {
    NodeId from = 0, until = 0;
  };

  // n log n in the graph, which must outlive this.
  explicit PlanProblem(const Graph& graph);

  const Graph& graph() const { return graph_; }
  NodeId num_nodes() const { return static_cast<NodeId>(graph_.nodes.size()); }
  StorageId num_storages() const { return static_cast<StorageId>(graph_.storages.size()); }
  int64_t bytes(StorageId s) const { return graph_.storages[s].bytes; }

  // Distinct storages that a node reads; that it reads or writes; nodes that read or write a
  // storage. All ascending.
  absl::Span<const StorageId> reads(NodeId n) const { return reads_[n]; }
  absl::Span<const StorageId> touches(NodeId n) const { return touches_[n]; }
  absl::Span<const NodeId> users(StorageId s) const { return users_[s]; }
  // Storages that a compute node allocates; none for views and updates.
  absl::Span<const StorageId> makes(NodeId n) const { return makes_[n]; }
  int64_t scratch(NodeId n) const { return scratch_[n]; }

  // A storage that a plan may give back before its last use: one forward node that may run again
  // makes it, nothing writes it afterwards, and the record does not keep it as a result.
  bool droppable(StorageId s) const { return droppable_[s]; }
  // The compute node that makes a storage; kNone: an input.
  NodeId maker(StorageId s) const { return maker_[s]; }
  // A forward node may run again up to the first run of this node, which overwrites what it reads;
  // num_nodes() where nothing does.
  NodeId expires(NodeId n) const { return expires_[n]; }

  // When a storage stays, ascending and apart. Parameters, inputs, results, what backward and the
  // optimizer make; of a droppable one, while a view made in backward shows it and after its maker
  // expired.
  absl::Span<const Stay> stays(StorageId s) const { return stays_[s]; }
  // Whether it stays between the first runs of `t` and `t` + 1.
  bool StaysAfter(StorageId s, NodeId t) const;

  // Whether some node of this phase was recorded.
  bool has(Phase phase) const { return has_[static_cast<size_t>(phase)]; }
  // Why no planner can do anything here: "" or the note of its plan.
  std::string NothingToDo() const;

 private:
  void FindMakers();
  void FindExpiries();
  void FindStays();

  const Graph& graph_;
  const std::vector<bool> pinned_;
  IdLists reads_, makes_, touches_, users_;
  std::vector<int64_t> scratch_;
  std::vector<NodeId> maker_, expires_;
  std::vector<bool> droppable_;
  std::vector<std::vector<Stay>> stays_;
  bool has_[kNumPhases] = {};
};

}  // namespace tally

#endif  // TALLY_ANALYSIS_PLAN_PROBLEM_H_
