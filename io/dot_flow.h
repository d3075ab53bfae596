// Links between the items of a drawing, and the items at its edge: inputs, outputs, neighbours.
#ifndef TALLY_IO_DOT_FLOW_H_
#define TALLY_IO_DOT_FLOW_H_

#include <map>
#include <string>
#include <vector>

#include "tally/io/dot_plan.h"

namespace tally::dot {

struct FlowArgs {
  const Account& account;
  const DotOptions& options;
  const std::vector<bool>& shown;    // per node: in focus
  const std::vector<bool>& visible;  // per node: not folded into edges
  const Repeats& repeats;
  const PlanView& plan;
  const std::vector<ItemId>& item_of;   // per node drawn as itself
  const std::vector<ItemId>& rerun_of;  // the same for its second run
};

void ConnectItems(const FlowArgs& args, Drawing& drawing);

// Where values come from once views and hidden nodes are looked through.
struct Source {
  NodeId node = kNone;    // a visible node, or one out of focus
  ValueId input = kNone;  // or a value that no node makes
  int32_t via = 0;        // index into Sources::vias: ops passed on the way
};

class Sources {
 public:
  explicit Sources(const FlowArgs& args);
  absl::Span<const Source> of(ValueId v) const { return by_value_[v]; }
  const std::string& via(int32_t index) const { return vias_[index]; }

 private:
  void Pass(NodeId n);
  void Reduce(absl::InlinedVector<Source, 1>& list) const;
  void NoteAncestors(NodeId n);
  int32_t Rank(const Source& s) const {
    return s.node == kNone ? input_rank_[s.input] : rank_[s.node];
  }
  int32_t Extend(int32_t via, const char* op);

  const FlowArgs& a_;
  const Graph& g_;
  std::vector<absl::InlinedVector<Source, 1>> by_value_;
  std::vector<std::string> vias_;
  std::map<std::string, int32_t> via_index_;
  std::vector<int32_t> rank_;        // per node: number among contractions and inputs
  std::vector<int32_t> input_rank_;  // per value without a producer: the same
  size_t words_ = 0;
  std::vector<std::vector<uint64_t>> ancestors_;  // per contraction, bits
};

}  // namespace tally::dot

#endif  // TALLY_IO_DOT_FLOW_H_
