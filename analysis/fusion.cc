#include "tally/analysis/fusion.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "tally/autograd/plan.h"
#include "tally/ops/binary.h"
#include "tally/ops/copy.h"
#include "tally/ops/cross_entropy.h"
#include "tally/ops/dropout.h"
#include "tally/ops/gated.h"
#include "tally/ops/norm.h"
#include "tally/ops/optimizer_step.h"
#include "tally/ops/rms_norm.h"
#include "tally/ops/rope.h"
#include "tally/ops/select.h"
#include "tally/ops/softmax.h"
#include "tally/ops/unary.h"
#include "tally/ops/update.h"

namespace tally {
namespace {

enum class Kind : uint8_t { kOther, kElements, kRows };

using Kinds = absl::flat_hash_map<const OpDef*, Kind>;

const Kinds& KindTable() {
  static const Kinds* const table = [] {
    auto* kinds = new Kinds;
    for (OpFamily family : {UnaryOps(), BinaryOps(), GatedOps(), SelectOps(), DropoutOps(),
                            UpdateOps(), OptimizerOps()}) {
      for (const OpDef* op : family) (*kinds)[op] = Kind::kElements;
    }
    for (const OpDef* op : CopyOps()) {
      if (absl::string_view(op->name) == "cast") (*kinds)[op] = Kind::kElements;
    }
    for (OpFamily family : {SoftmaxOps(), NormOps(), RmsNormOps(), RopeOps()}) {
      for (const OpDef* op : family) (*kinds)[op] = Kind::kRows;
    }
    (*kinds)[&kCrossEntropyGrad] = Kind::kRows;
    // These sum over rows, not along them.
    kinds->erase(&kLayerNormParamGrad);
    kinds->erase(&kRmsNormParamGrad);
    return kinds;
  }();
  return *table;
}

bool KeepsOrder(const OpDef& op) {
  const absl::string_view name = op.name;
  return name == "reshape" || name == "squeeze" || name == "unsqueeze";
}

bool OnLastAxis(const Node& node, int rank) {
  int axis = -1;
  if (node.op == &kSoftmax || node.op == &kSoftmaxGrad) axis = node.attrs.As<SoftmaxAttrs>().axis;
  if (node.op == &kLogSoftmax || node.op == &kLogSoftmaxGrad)
    axis = node.attrs.As<LogSoftmaxAttrs>().axis;
  return axis == -1 || axis == rank - 1;
}

// What a node works on: `elements` of them, in rows of `row` (0: each alone). No elements: nothing
// that could be fused.
struct Space {
  int64_t elements = 0, row = 0;
};

Space SpaceOf(const Graph& graph, const Node& node) {
  const auto it = KindTable().find(node.op);
  if (it == KindTable().end() || node.num_in == 0 || node.num_out == 0) return {};
  const TensorSpec* largest = nullptr;
  for (const auto& operands : {graph.in(node), graph.out(node)}) {
    for (ValueId v : operands) {
      const TensorSpec& spec = graph.values[v].spec;
      if (largest == nullptr || spec.numel() > largest->numel()) largest = &spec;
    }
  }
  const Shape& shape = largest->shape;
  // The result proper is as large as anything read: elementwise, or a map of rows to rows.
  if (largest->numel() == 0 || graph.numel(graph.out(node)[0]) != largest->numel()) return {};
  if (it->second == Kind::kElements) return {largest->numel(), 0};
  if (shape.rank() == 0 || !OnLastAxis(node, shape.rank())) return {};
  return {largest->numel(), shape[shape.rank() - 1]};
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph)
      : g_(graph),
        base_(graph.values.size()),
        ordered_(graph.values.size(), true),
        maker_(graph.values.size(), kNone),
        parent_(graph.nodes.size()),
        open_(graph.nodes.size(), false),
        space_(graph.nodes.size()),
        users_(graph.storages.size()) {
    for (size_t v = 0; v < base_.size(); ++v) base_[v] = static_cast<ValueId>(v);
    for (size_t n = 0; n < parent_.size(); ++n) parent_[n] = static_cast<NodeId>(n);
  }

  FusionReport Run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.op->kind == OpKind::kView)
        Look(node);
      else
        Place(static_cast<NodeId>(n), node);
    }
    return Collect();
  }

 private:
  NodeId Find(NodeId n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  // The kernel that made what `v` shows; kNone: none did.
  NodeId MakerOf(ValueId v) {
    const NodeId maker = maker_[base_[v]];
    return maker == kNone ? kNone : Find(maker);
  }
  static bool Reads(const Node& node, int i) { return !node.op->overwrites.Contains(i); }

  void Look(const Node& node) {
    const ValueId in = g_.in(node)[0];
    for (ValueId out : g_.out(node)) {
      base_[out] = base_[in];
      ordered_[out] = ordered_[in] && KeepsOrder(*node.op);
    }
  }

  bool Fits(const Space& a, const Space& b) const {
    return a.elements == b.elements && (a.row == 0 || b.row == 0 || a.row == b.row);
  }

  void Place(NodeId n, const Node& node) {
    const Space space = SpaceOf(g_, node);
    const auto in = g_.in(node);
    std::vector<NodeId> joined, barred;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!Reads(node, static_cast<int>(i))) continue;
      const NodeId kernel = MakerOf(in[i]);
      if (kernel == kNone) continue;
      const bool fits = space.elements > 0 && open_[kernel] && ordered_[in[i]] &&
                        g_.numel(in[i]) == space.elements && Fits(space, space_[kernel]);
      (fits ? joined : barred).push_back(kernel);
    }
    open_[n] = space.elements > 0;
    space_[n] = space;
    for (NodeId kernel : joined) {
      kernel = Find(kernel);
      // Joining one may have set the length of the rows that another does not have.
      if (kernel == n || absl::c_linear_search(barred, kernel) || !Fits(space_[n], space_[kernel]))
        continue;
      parent_[kernel] = n;
      space_[n].row = std::max(space_[n].row, space_[kernel].row);
    }
    // What reads from a kernel and is not in it ends it: later nodes may lead back to this one.
    for (size_t i = 0; i < in.size(); ++i) {
      const NodeId kernel = Reads(node, static_cast<int>(i)) ? MakerOf(in[i]) : kNone;
      if (kernel != kNone && kernel != n) open_[kernel] = false;
    }
    Write(n, node);
    for (ValueId out : g_.out(node)) maker_[out] = n;
    if (!open_[n]) return;
    for (const auto& operands : {in, g_.out(node)}) {
      for (ValueId v : operands) users_[g_.values[v].storage].push_back(n);
    }
  }

  // A kernel that uses what is overwritten here must have run.
  void Write(NodeId n, const Node& node) {
    if (node.op->kind != OpKind::kUpdate) return;
    for (ValueId out : g_.out(node)) {
      std::vector<NodeId>& users = users_[g_.values[out].storage];
      for (NodeId user : users) {
        if (Find(user) != n) open_[Find(user)] = false;
      }
      users.clear();
    }
  }

  // Values that must be in memory after the kernel that made them.
  std::vector<bool> Needed() {
    std::vector<bool> needed(g_.values.size(), false);
    const std::vector<bool> pinned = PinnedStorages(g_);
    std::vector<uint32_t> last(g_.storages.size(), 0);  // versions
    for (const Value& value : g_.values)
      last[value.storage] = std::max(last[value.storage], value.version);
    for (size_t v = 0; v < g_.values.size(); ++v) {
      const Value& value = g_.values[v];
      if (pinned[value.storage] && value.version == last[value.storage]) needed[base_[v]] = true;
    }
    for (ValueId v : g_.outputs) needed[base_[v]] = true;
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const Node& node = g_.nodes[n];
      for (ValueId v : g_.saved(node)) needed[base_[v]] = true;
      if (node.op->kind == OpKind::kView) continue;
      const NodeId kernel = Find(static_cast<NodeId>(n));
      const auto in = g_.in(node);
      for (size_t i = 0; i < in.size(); ++i) {
        if (Reads(node, static_cast<int>(i)) && MakerOf(in[i]) != kernel)
          needed[base_[in[i]]] = true;
      }
    }
    return needed;
  }

  FusionReport Collect() {
    FusionReport report;
    report.kernel_of.assign(g_.nodes.size(), kNone);
    std::vector<std::vector<NodeId>> members(g_.nodes.size());
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      if (g_.nodes[n].op->kind != OpKind::kView)
        members[Find(static_cast<NodeId>(n))].push_back(static_cast<NodeId>(n));
    }
    const std::vector<bool> needed = Needed();
    for (std::vector<NodeId>& nodes : members) {
      if (nodes.size() < 2) continue;
      FusedKernel kernel = Price(std::move(nodes), needed);
      for (NodeId n : kernel.nodes)
        report.kernel_of[n] = static_cast<int32_t>(report.kernels.size());
      report.fused_nodes += kernel.cost.nodes;
      report.bytes_saved += kernel.bytes_apart - kernel.cost.bytes();
      report.kernels.push_back(std::move(kernel));
    }
    return report;
  }

  FusedKernel Price(std::vector<NodeId> nodes, const std::vector<bool>& needed) {
    FusedKernel kernel;
    const NodeId id = Find(nodes[0]);
    absl::flat_hash_set<ValueId> read;
    for (NodeId n : nodes) {
      const Node& node = g_.nodes[n];
      const CostLine apart = CostLineOf(g_, node);
      kernel.bytes_apart += apart.bytes();
      kernel.cost.flops += apart.flops;
      const auto in = g_.in(node);
      for (size_t i = 0; i < in.size(); ++i) {
        if (!Reads(node, static_cast<int>(i)) || MakerOf(in[i]) == id) continue;
        // A reshape of what was read is the same bytes.
        if (read.insert(ordered_[in[i]] ? base_[in[i]] : in[i]).second)
          kernel.cost.bytes_read += g_.values[in[i]].spec.bytes();
      }
      for (ValueId out : g_.out(node)) {
        if (needed[base_[out]]) kernel.cost.bytes_written += g_.values[out].spec.bytes();
      }
    }
    kernel.cost.nodes = static_cast<int64_t>(nodes.size());
    kernel.nodes = std::move(nodes);
    return kernel;
  }

  const Graph& g_;
  std::vector<ValueId> base_;               // per value: what it is a view of, to the end
  std::vector<bool> ordered_;               // per value: shows all of its base in the base's order
  std::vector<NodeId> maker_;               // per base: the node that made it
  std::vector<NodeId> parent_;              // union-find; a kernel's root is its last node
  std::vector<bool> open_;                  // per root: later nodes may join
  std::vector<Space> space_;                // per root
  std::vector<std::vector<NodeId>> users_;  // per storage: nodes of open kernels that use it
};

}  // namespace

FusionReport FuseElementwise(const Graph& graph) { return Fuser(graph).Run(); }

}  // namespace tally
