// Graph: the finished record of a run. Plain data: no tensors, no closures.
//
// Execution order is node order, which is a topological order. Positions of storage events are node
// ids: an event at position p happened after node p-1 and no later than node p.
#ifndef TALLY_AUTOGRAD_GRAPH_H_
#define TALLY_AUTOGRAD_GRAPH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tally/ops/op_def.h"
#include "tally/ops/recorder.h"

namespace tally {

using ValueId = int32_t;
using StorageId = int32_t;
using NameId = int32_t;  // index into Graph::names; -1: none
inline constexpr int32_t kNone = -1;

// One tensor as it was at one time.
struct Value {
  TensorSpec spec;
  StorageId storage = kNone;
  uint32_t version = 0;     // of the storage, relative to its first appearance
  NodeId producer = kNone;  // kNone: an input
  NameId name = kNone;      // "" or what the user called it
  NameId axes = kNone;      // names of its axes, "batch seq hidden"
  bool watched = false;     // a leaf that gradients were asked for
};

struct Node {
  const OpDef* op = nullptr;  // for an op unknown to this program: a stand-in owned by the graph
  Attrs attrs;
  uint32_t first = 0;  // in Graph::ids: inputs, then outputs, then saved
  uint16_t num_in = 0, num_out = 0, num_saved = 0;
  Phase phase = Phase::kForward;
  NodeId serves = kNone;  // backward, recompute: the forward node
  ScopeId scope = 0;
  int32_t foreign = kNone;  // index into Graph::foreign
};

struct StorageRecord {
  int64_t bytes = 0;
  Origin origin = Origin::kActivation;
  NameId name = kNone;
  bool resident = false;  // existed before the tape
};

struct StorageEvent {
  enum Kind : uint8_t { kAllocate, kFree };
  Kind kind = kAllocate;
  StorageId storage = kNone;
  NodeId at = 0;
};

struct ScopeRecord {
  ScopeId parent = kNone;  // the root is its own: kNone
  NameId name = kNone;
};

// What a file declared of a node whose op this program does not know.
struct ForeignNode {
  std::string op;
  std::string attrs_json;
  Cost cost;
};

struct RngBase {
  uint64_t seed = 0;
  uint32_t stream = 0;
  uint64_t offset = 0;  // absolute; recorded offsets are relative to it
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<int32_t> ids;  // operands of all nodes
  std::vector<StorageRecord> storages;
  std::vector<StorageEvent> events;
  std::vector<ScopeRecord> scopes;  // [0] is the root
  std::vector<std::string> names;
  std::vector<ValueId> outputs;      // alive at Finish, or read by the host; ascending
  std::vector<ValueId> tokens;       // whose rows are the tokens; none: the rows of the loss are
  ValueId loss = kNone;              // the tensor first differentiated
  std::vector<ValueId> gradients;    // what Gradient returned, in order of its `wrt`
  std::vector<ValueId> gradient_of;  // the watched value of each
  std::vector<RngBase> rng;
  int64_t baseline_bytes = 0;  // live before the tape and touched by no op
  Device device;
  std::vector<ForeignNode> foreign;
  std::vector<std::shared_ptr<OpDef>> foreign_ops;

  absl::Span<const int32_t> in(const Node& n) const { return {ids.data() + n.first, n.num_in}; }
  absl::Span<const int32_t> out(const Node& n) const {
    return {ids.data() + n.first + n.num_in, n.num_out};
  }
  // Residuals: a subset of inputs and outputs kept for this node's gradient.
  absl::Span<const int32_t> saved(const Node& n) const {
    return {ids.data() + n.first + n.num_in + n.num_out, n.num_saved};
  }
  const std::string& name(NameId id) const;
  // "h.3/attn"; "" for the root.
  std::string ScopePath(ScopeId id) const;
  int64_t numel(ValueId v) const { return values[v].spec.numel(); }
};

// Operand specs of a node, for cost and infer. Keeps the arrays that OpCall points into.
class NodeCall {
 public:
  NodeCall(const Graph& graph, const Node& node);
  OpCall call() const { return {*op_, SpecRefs(in_), SpecRefs(out_), *attrs_}; }

 private:
  const OpDef* op_;
  const Attrs* attrs_;
  absl::InlinedVector<const TensorSpec*, 8> in_, out_;
};

// The node's cost by its op's rule, or as declared for a foreign op.
Cost CostOf(const Graph& graph, const Node& node);

}  // namespace tally

#endif  // TALLY_AUTOGRAD_GRAPH_H_
