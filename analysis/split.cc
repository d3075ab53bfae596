#include "tally/analysis/split.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tally/analysis/flow.h"
#include "tally/analysis/provenance.h"
#include "tally/analysis/reconcile.h"

namespace tally {
namespace {

// Ops whose rows follow from shapes alone: out = a · b over one axis.
bool IsPlainProduct(const OpDef& op) {
  return std::strcmp(op.name, "matmul") == 0 || std::strcmp(op.name, "linear") == 0;
}

// The axis of the output with one element per column of the weight, for other contractions of known
// shapes; the rows are what is left.
std::optional<int> ColumnAxis(const OpDef& op) {
  static constexpr struct {
    const char* name;
    int axis;
  } kAxes[] = {{"conv2d", 1}, {"grouped_matmul", 1}};
  for (const auto& entry : kAxes) {
    if (std::strcmp(op.name, entry.name) == 0) return entry.axis;
  }
  return std::nullopt;
}

// Ops that pick rows of input 0.
bool IsLookup(const OpDef& op) { return std::strcmp(op.name, "gather_rows") == 0; }

// The two operands of a contraction: which input is the weight, which the activation.
struct Operands {
  int weight = kNone;
  int activation = kNone;
  int parameters = 0;  // operands that are forms of parameters
};

class Splitter {
 public:
  explicit Splitter(const Graph& graph)
      : g_(graph),
        provenance_(graph),
        flow_(TraceFlow(graph)),
        sets_(graph.nodes.size(), 0),
        forward_index_(graph.nodes.size(), kNone),
        kind_(graph.nodes.size(), kNothing) {}

  SplitProof Run() {
    Measure();
    ListParameters();
    for (NodeId n = 0; n < NumNodes(); ++n) {
      if (matmul_[n] > 0 && g_.nodes[n].phase == Phase::kForward) Forward(n);
    }
    for (NodeId n = 0; n < NumNodes(); ++n) {
      if (matmul_[n] > 0 && g_.nodes[n].phase == Phase::kBackward) Backward(n);
    }
    Reasons();
    MarkUses();
    Sums();
    Tokens();
    Active();
    Cover();
    for (const bool with_embedding : {true, false}) {
      p_.reconciliations.push_back(Reconcile(g_, p_, with_embedding));
      const Reconciliation& r = p_.reconciliations.back();
      if (r.difference != 0) {
        Fail(absl::StrCat(r.name, ": the terms differ from the measured FLOPs by ",
                          ToDecimal(r.difference)));
      }
    }
    p_.holds = p_.failures.empty();
    return std::move(p_);
  }

 private:
  enum Kind : uint8_t { kNothing, kWeight, kActivation, kProduct };

  NodeId NumNodes() const { return static_cast<NodeId>(g_.nodes.size()); }
  void Fail(std::string what) { p_.failures.push_back(std::move(what)); }
  std::string At(NodeId n) const {
    return absl::StrCat("node ", n, " (", g_.nodes[n].op->name, ")");
  }

  void Measure() {
    matmul_.resize(g_.nodes.size());
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      matmul_[n] = node.op->kind == OpKind::kView ? Count(0) : CostOf(g_, node).matmul;
      if (node.phase == Phase::kForward) p_.forward += matmul_[n];
      if (node.phase == Phase::kBackward) p_.backward += matmul_[n];
      if (node.phase == Phase::kRecompute) p_.recompute += matmul_[n];
    }
  }

  void ListParameters() {
    parameter_index_.assign(g_.storages.size(), kNone);
    for (const Value& value : g_.values) {
      const StorageRecord& record = g_.storages[value.storage];
      if (record.origin != Origin::kParameter || parameter_index_[value.storage] != kNone) continue;
      parameter_index_[value.storage] = 0;
      ProofParameter parameter;
      parameter.storage = value.storage;
      parameter.name = StorageName(g_, value.storage);
      parameter.numel = record.bytes / ItemSize(value.spec.dtype);
      parameter.watched = flow_.watched[value.storage];
      p_.parameter_list.push_back(std::move(parameter));
    }
    std::sort(
        p_.parameter_list.begin(), p_.parameter_list.end(),
        [](const ProofParameter& a, const ProofParameter& b) { return a.storage < b.storage; });
    for (size_t i = 0; i < p_.parameter_list.size(); ++i) {
      parameter_index_[p_.parameter_list[i].storage] = static_cast<int32_t>(i);
    }
  }

  // A plain product has its operands at 0 and 1. Of other ops every float input counts, and among
  // several parameters only those of rank 2 and more (a bias is not an operand).
  Operands FindOperands(const Node& node) const {
    const auto in = g_.in(node);
    const bool plain = IsPlainProduct(*node.op);
    Operands found;
    for (const int least_rank : {0, 2}) {
      found = {};
      for (int i = 0; i < static_cast<int>(in.size()); ++i) {
        const TensorSpec& spec = g_.values[in[i]].spec;
        if ((plain && i > 1) || !IsFloat(spec.dtype)) continue;
        if (provenance_.parameter(in[i]) == kNone) {
          if (found.activation == kNone) found.activation = i;
        } else if (spec.rank() >= least_rank) {
          if (found.weight == kNone) found.weight = i;
          ++found.parameters;
        }
      }
      if (plain || found.parameters <= 1) break;
    }
    return found;
  }

  void Forward(NodeId n) {
    const Node& node = g_.nodes[n];
    // One node makes all gradients of fused attention, so none can be told to be of a weight.
    const bool fused = node.foreign == kNone && node.op->masked != nullptr;
    const Operands operands = fused ? Operands() : FindOperands(node);
    if (operands.parameters == 1 && operands.activation != kNone) {
      kind_[n] = kWeight;
      forward_index_[n] = static_cast<int32_t>(p_.contractions.size());
      p_.contractions.push_back(Weight(n, operands));
      activation_operand_.push_back(operands.activation);
    } else {
      const bool product =
          operands.parameters > 1 || (operands.parameters == 1 && operands.activation == kNone);
      kind_[n] = product ? kProduct : kActivation;
      std::vector<OtherContraction>& list = product ? p_.products : p_.activations;
      forward_index_[n] = static_cast<int32_t>(list.size());
      list.push_back({n, matmul_[n]});
    }
    ++sets_[n];
  }

  WeightContraction Weight(NodeId n, const Operands& operands) {
    const Node& node = g_.nodes[n];
    const ValueId w = g_.in(node)[operands.weight];
    WeightContraction c;
    c.node = n;
    c.parameter = provenance_.parameter(w);
    c.region = provenance_.region(w);
    c.operand = operands.weight;
    c.elements = provenance_.elements(w);
    c.forward = matmul_[n];
    if (node.foreign == kNone && node.op->groups != nullptr) {
      c.groups = node.op->groups(NodeCall(g_, node).call());
    }
    if (c.groups < 1 || c.elements % c.groups != 0) {
      Fail(absl::StrCat(At(n), ": ", c.groups, " groups do not divide |W| = ", c.elements));
      c.groups = 1;
    }
    const Count per_row = Count(2) * (c.elements / c.groups);
    std::optional<int64_t> rows;
    const std::optional<int> column_axis =
        node.foreign == kNone ? ColumnAxis(*node.op) : std::nullopt;
    if (IsPlainProduct(*node.op)) {
      rows = RowsByShape(node, operands, c.elements);
    } else if (column_axis.has_value()) {
      const Shape& out = g_.values[g_.out(node)[0]].spec.shape;
      if (out[*column_axis] > 0) rows = out.numel() / out[*column_axis];
    } else {
      c.declared = true;
      if (per_row > 0 && c.forward % per_row == 0) rows = static_cast<int64_t>(c.forward / per_row);
    }
    c.rows = rows.value_or(0);
    if (!rows.has_value() || per_row * c.rows != c.forward) {
      Fail(absl::StrCat(At(n), ": its cost ", ToDecimal(c.forward),
                        " is not 2·r·|W| with |W| = ", c.elements / c.groups,
                        rows.has_value() ? absl::StrCat(" and r = ", *rows) : " for any whole r"));
    }
    return c;
  }

  // Rows against a weight: elements of the output times the contracted length, over |W|.
  std::optional<int64_t> RowsByShape(const Node& node, const Operands& operands,
                                     int64_t elements) const {
    const Shape& w = g_.values[g_.in(node)[operands.weight]].spec.shape;
    const Shape& x = g_.values[g_.in(node)[operands.activation]].spec.shape;
    const Shape& out = g_.values[g_.out(node)[0]].spec.shape;
    int64_t contracted = w.numel();
    if (w.rank() >= 2) {
      const int free_axis = operands.weight == 1 || x.rank() == 1 ? -1 : -2;
      if (out.rank() < -free_axis || out[free_axis] == 0) return std::nullopt;
      contracted = w[-1] * w[-2] / out[free_axis];
    }
    const Count products = Count(out.numel()) * contracted;
    if (elements == 0 || products % elements != 0) return std::nullopt;
    return static_cast<int64_t>(products / elements);
  }

  void Backward(NodeId n) {
    const NodeId f = g_.nodes[n].serves;
    ++sets_[n];
    if (f != kNone && g_.nodes[f].phase == Phase::kBackward) {
      p_.second_order.push_back(n);
    } else if (f == kNone || kind_[f] == kNothing) {
      p_.gradient_only.push_back(n);
    } else if (kind_[f] == kWeight) {
      WeightBackward(n, p_.contractions[forward_index_[f]], activation_operand_[forward_index_[f]]);
    } else {
      OtherContraction& c =
          (kind_[f] == kProduct ? p_.products : p_.activations)[forward_index_[f]];
      c.backward_nodes.push_back(n);
      c.backward += matmul_[n];
    }
  }

  // A backward contraction reads the cotangent and one forward operand, and differentiates the
  // other.
  void WeightBackward(NodeId n, WeightContraction& c, int activation_operand) {
    const Node& node = g_.nodes[n];
    const Node& f = g_.nodes[c.node];
    const ValueId w = g_.in(f)[c.operand], x = g_.in(f)[activation_operand];
    const int64_t made = g_.numel(g_.out(node)[0]);
    bool reads_w = false, reads_x = false;
    for (ValueId v : g_.in(node)) {
      reads_w |= provenance_.root(v) == provenance_.root(w);
      reads_x |= provenance_.root(v) == provenance_.root(x);
    }
    bool of_weight = reads_x;
    if (reads_w == reads_x) {  // the cotangent is itself an operand: sizes must tell
      const bool fits_w = made == g_.numel(w), fits_x = made == g_.numel(x);
      if (fits_w == fits_x) {
        Fail(absl::StrCat(At(n), ": cannot tell which operand of ", At(c.node),
                          " it differentiates"));
        return;
      }
      of_weight = fits_w;
    }
    // A broadcast operand's gradient is made for every copy and summed afterwards.
    const int64_t size = of_weight ? c.elements : g_.numel(x);
    if (size == 0 || made % size != 0) {
      Fail(absl::StrCat(At(n), ": makes ", made, " elements; the operand of ", At(c.node),
                        " it differentiates has ", size));
    }
    GradientPart& part = of_weight ? c.weight_grad : c.input_grad;
    part.nodes.push_back(n);
    part.flops += matmul_[n];
    if (matmul_[n] != c.forward) {
      Fail(absl::StrCat(At(n), ": costs ", ToDecimal(matmul_[n]), "; 2·r·|W| of ", At(c.node),
                        " is ", ToDecimal(c.forward)));
    }
  }

  void Reasons() {
    for (size_t i = 0; i < p_.contractions.size(); ++i) {
      WeightContraction& c = p_.contractions[i];
      const Node& f = g_.nodes[c.node];
      const ValueId w = g_.in(f)[c.operand], x = g_.in(f)[activation_operand_[i]];
      const char* both = !flow_.has_backward            ? "no backward recorded"
                         : !flow_.on_path[g_.out(f)[0]] ? "not on the path to the loss"
                                                        : nullptr;
      if (c.weight_grad.nodes.empty()) {
        c.weight_grad.reason = both != nullptr               ? both
                               : !flow_.watched[c.parameter] ? kFrozenReason
                               : !flow_.needs_gradient[w]    ? "gradient was not asked for"
                                                             : "computed without a contraction";
      }
      if (c.input_grad.nodes.empty()) {
        c.input_grad.reason = both != nullptr            ? both
                              : !flow_.needs_gradient[x] ? "input needs no gradient"
                                                         : "computed without a contraction";
      }
    }
  }

  void MarkUses() {
    std::vector<uint8_t> elementwise(p_.parameter_list.size(), 0), product(elementwise);
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Node& node = g_.nodes[n];
      if (node.phase != Phase::kForward || node.op->kind == OpKind::kView || IsCopy(*node.op))
        continue;
      const auto in = g_.in(node);
      for (int i = 0; i < static_cast<int>(in.size()); ++i) {
        const StorageId s = provenance_.parameter(in[i]);
        if (s == kNone) continue;
        const int32_t index = parameter_index_[s];
        if (kind_[n] == kWeight && i == p_.contractions[forward_index_[n]].operand) continue;
        if (IsLookup(*node.op) && i == 0) {
          p_.parameter_list[index].lookup = true;
        } else if (kind_[n] == kProduct) {
          product[index] = 1;
        } else {
          elementwise[index] = 1;
        }
      }
    }
    std::vector<uint8_t> contracted(p_.parameter_list.size(), 0);
    for (const WeightContraction& c : p_.contractions) AddTo(c, contracted);
    for (size_t i = 0; i < p_.parameter_list.size(); ++i) {
      ProofParameter& p = p_.parameter_list[i];
      p.use = contracted[i]    ? ProofParameter::kContracted
              : product[i]     ? ProofParameter::kProduct
              : elementwise[i] ? ProofParameter::kElementwise
              : p.lookup       ? ProofParameter::kLookup
                               : ProofParameter::kUnused;
    }
  }

  void AddTo(const WeightContraction& c, std::vector<uint8_t>& contracted) {
    const int32_t index = parameter_index_[c.parameter];
    contracted[index] = 1;
    ProofParameter& p = p_.parameter_list[index];
    p.groups = std::max(p.groups, c.groups);
    p.rows += c.rows;
    p.forward += c.forward;
    p.weight_grad += c.weight_grad.flops;
    p.input_grad += c.input_grad.flops;
    for (const std::string* reason : {&c.weight_grad.reason, &c.input_grad.reason}) {
      if (reason->empty() || p.reason.find(*reason) != std::string::npos) continue;
      absl::StrAppend(&p.reason, p.reason.empty() ? "" : "; ", *reason);
    }
  }

  void Tokens() {
    const bool any = !p_.contractions.empty();
    const LossRows rows = CountLossRows(g_, flow_, any ? p_.contractions.back().node : kNone,
                                        any ? p_.contractions.back().rows : 0);
    p_.tokens = rows.rows;
    p_.tokens_origin = rows.origin;
    // Only a made-up graph comes near: 128 bits hold 6·N·D of any real one.
    static constexpr Count kMost = Count(1) << 123;
    if (p_.parameters > 0 && p_.tokens > kMost / 6 / p_.parameters) {
      Fail(absl::StrCat("6·N·D does not fit: N = ", ToDecimal(p_.parameters), ", D = ", p_.tokens));
      p_.tokens = 0;
    }
  }

  // Of a stack of E experts, a token passes rows/D: the stack counts with that share.
  void Active() {
    absl::flat_hash_map<ValueId, std::pair<const WeightContraction*, Count>> stacks;
    for (const WeightContraction& c : p_.contractions) {
      if (c.groups == 1) continue;
      auto& [first, rows] = stacks.try_emplace(c.region, &c, 0).first->second;
      rows += c.rows;
    }
    for (ProofParameter& p : p_.parameter_list) p.active = p.numel;
    for (const auto& [region, stack] : stacks) {
      if (p_.tokens == 0) continue;
      const auto& [c, rows] = stack;
      const Count passed = rows * (c->elements / c->groups) / p_.tokens;
      p_.parameter_list[parameter_index_[c->parameter]].active -=
          c->elements - std::min<Count>(c->elements, passed);
    }
    for (const ProofParameter& p : p_.parameter_list) p_.parameters_active += p.active;
  }

  void Sums() {
    for (const WeightContraction& c : p_.contractions) {
      p_.weight_forward += c.forward;
      p_.weight_grad += c.weight_grad.flops;
      p_.input_grad += c.input_grad.flops;
    }
    for (const OtherContraction& c : p_.activations) {
      p_.activation_forward += c.forward;
      p_.activation_backward += c.backward;
    }
    p_.input_grad += p_.activation_backward;
    for (const OtherContraction& c : p_.products) {
      p_.product_forward += c.forward;
      p_.other_backward += c.backward;
    }
    for (NodeId n : p_.second_order) p_.other_backward += matmul_[n];
    for (NodeId n : p_.gradient_only) p_.other_backward += matmul_[n];
    for (const ProofParameter& p : p_.parameter_list) {
      p_.parameters += p.numel;
      if (p.lookup) p_.parameters_embedding += p.numel;
      if (p.watched) p_.parameters_trained += p.numel;
      if (p.use == ProofParameter::kContracted) p_.parameters_matmul += p.numel;
    }
  }

  // Every contraction of forward and backward is in one set, and the sets add up to what was
  // measured.
  void Cover() {
    for (NodeId n = 0; n < NumNodes(); ++n) {
      const Phase phase = g_.nodes[n].phase;
      const bool counts = matmul_[n] > 0 && (phase == Phase::kForward || phase == Phase::kBackward);
      if (sets_[n] != (counts ? 1 : 0)) Fail(absl::StrCat(At(n), ": is in ", sets_[n], " sets"));
    }
    if (p_.weight_forward + p_.activation_forward + p_.product_forward != p_.forward) {
      Fail("forward: the sets do not add up to the measured FLOPs");
    }
    if (p_.weight_grad + p_.input_grad + p_.other_backward != p_.backward) {
      Fail("backward: the sets do not add up to the measured FLOPs");
    }
  }

  const Graph& g_;
  const Provenance provenance_;
  const Flow flow_;
  SplitProof p_;
  std::vector<Count> matmul_;           // per node
  std::vector<int> sets_;               // per node: in how many sets
  std::vector<int32_t> forward_index_;  // per forward contraction: its place in its list
  std::vector<Kind> kind_;
  std::vector<int> activation_operand_;   // beside p_.contractions
  std::vector<int32_t> parameter_index_;  // per storage: its place in parameter_list
};

}  // namespace

const char* Name(ProofParameter::Use use) {
  static constexpr const char* kNames[] = {"contracted", "product", "lookup", "elementwise",
                                           "unused"};
  return kNames[use];
}

SplitProof ProveSplit(const Graph& graph) { return Splitter(graph).Run(); }

}  // namespace tally
