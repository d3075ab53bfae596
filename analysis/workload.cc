#include "tally/analysis/workload.h"

#include <algorithm>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tally {
namespace {

double ToDouble(Count count) { return static_cast<double>(count); }

absl::Span<const AttrField> FieldsOf(const OpDef& op) {
  return op.attrs == nullptr ? absl::Span<const AttrField>() : op.attrs();
}

template <typename T>
T FieldValue(const AttrField& field, const Attrs& attrs) {
  T value;
  std::memcpy(&value, attrs.data() + field.offset, sizeof(T));
  return value;
}

// How the operands of a product lie, from its flags: every op that contracts names them
// transpose_a, transpose_b, or transpose_w... for its second operand.
std::string FormOfProduct(const Node& node) {
  std::string form = "NN";
  for (const AttrField& field : FieldsOf(*node.op)) {
    if (field.type != AttrType::kBool || !absl::StartsWith(field.name, "transpose_")) continue;
    if (FieldValue<bool>(field, node.attrs))
      form[std::strcmp(field.name, "transpose_a") == 0 ? 0 : 1] = 'T';
  }
  return form;
}

// "inner", "outer", or "" for an op that has no axes. An empty list of axes means all of them.
std::string FormOfAxes(const Graph& graph, const Node& node) {
  if (node.num_in == 0) return "";
  const int last = graph.values[graph.in(node)[0]].spec.shape.rank() - 1;
  const auto is_last = [&](int axis) { return axis == -1 || axis == last; };
  for (const AttrField& field : FieldsOf(*node.op)) {
    if (field.type == AttrType::kAxes) {
      const Axes axes = FieldValue<Axes>(field, node.attrs);
      bool inner = axes.size() == 0;
      for (int i = 0; i < axes.size(); ++i) inner |= is_last(axes[i]);
      return inner ? "inner" : "outer";
    }
    if (field.type == AttrType::kI32 && std::strcmp(field.name, "axis") == 0)
      return is_last(FieldValue<int32_t>(field, node.attrs)) ? "inner" : "outer";
  }
  return "";
}

bool MaySkipInput(const OpDef& op) {
  if (op.masked != nullptr) return true;
  const auto fields = FieldsOf(op);
  return std::any_of(fields.begin(), fields.end(), [](const AttrField& field) {
    return absl::StartsWith(field.name, "stride") || absl::StartsWith(field.name, "size_");
  });
}

DType DTypeOf(const Graph& graph, const Node& node) {
  for (const auto ids : {graph.in(node), graph.out(node)}) {
    for (const ValueId v : ids) {
      if (IsFloat(graph.values[v].spec.dtype)) return graph.values[v].spec.dtype;
    }
  }
  const ValueId first = node.num_in > 0 ? graph.in(node)[0] : graph.out(node)[0];
  return graph.values[first].spec.dtype;
}

void CountTraffic(const Graph& graph, const Node& node, const Cost& cost, Workload& work) {
  double written = 0, written_bytes = 0;
  for (const ValueId v : graph.out(node)) {
    written += static_cast<double>(graph.numel(v));
    written_bytes += static_cast<double>(graph.values[v].spec.bytes());
  }
  const auto in = graph.in(node);
  absl::InlinedVector<ValueId, 8> read;
  bool has_index = false;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!node.op->overwrites.Contains(static_cast<int>(i))) read.push_back(in[i]);
    const DType dtype = graph.values[in[i]].spec.dtype;
    has_index |= dtype == DType::kI64 || dtype == DType::kI32;
  }
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  const bool lookup = has_index && cost.total() == 0;
  const bool may_skip = lookup || MaySkipInput(*node.op);
  work.elements = written;
  work.bytes = work.least_bytes = written_bytes;
  for (const ValueId v : read) {
    double elements = static_cast<double>(graph.numel(v));
    const auto width = static_cast<double>(ItemSize(graph.values[v].spec.dtype));
    work.least_bytes += width * (may_skip ? std::min(elements, written) : elements);
    if (lookup) elements = std::min(elements, written);
    work.elements += elements;
    work.bytes += width * elements;
  }
}

void PlaceContraction(const Graph& graph, const Node& node, const Cost& cost, Workload& work) {
  work.flops = ToDouble(cost.matmul);
  if (node.foreign == kNone && node.op->masked != nullptr) {
    work.flops = ToDouble(node.op->masked(NodeCall(graph, node).call()).executed);
  }
  if (work.flops <= 0) return;
  const auto reuse = [&](ValueId v) {
    return std::max(1.0,
                    work.flops / kFlopsPerFma / std::max(1.0, static_cast<double>(graph.numel(v))));
  };
  const auto in = graph.in(node);
  work.reuse = {in.empty() ? 1 : reuse(in[0]), in.size() < 2 ? 1 : reuse(in[1]),
                node.num_out == 0 ? 1 : reuse(graph.out(node)[0])};
  work.products =
      std::max(1.0, work.flops / kFlopsPerFma / (work.reuse[0] * work.reuse[1] * work.reuse[2]));
}

// Seeds and offsets of random numbers change what is drawn, not how long that takes.
std::string CallText(const Graph& graph, const Node& node, const std::string& op) {
  std::string text = op;
  if (node.foreign == kNone) {
    for (const AttrField& field : FieldsOf(*node.op)) {
      if (field.type == AttrType::kRngOffset || field.type == AttrType::kU64) continue;
      absl::StrAppend(&text, " ", field.name, "=", AttrText(field, node.attrs));
    }
  } else {
    absl::StrAppend(&text, " ", graph.foreign[node.foreign].attrs_json);
  }
  for (const ValueId v : graph.in(node))
    absl::StrAppend(&text, " ", graph.values[v].spec.ToString());
  return text;
}

}  // namespace

Workload WorkloadOf(const Graph& graph, const Node& node) {
  Workload work;
  work.op = node.foreign == kNone ? node.op->name : graph.foreign[node.foreign].op;
  if (node.num_in + node.num_out > 0) work.dtype = DTypeOf(graph, node);
  if (node.op->kind == OpKind::kView) return work;
  work.call = CallText(graph, node, work.op);
  const Cost cost = CostOf(graph, node);
  work.other = ToDouble(cost.other);
  work.transcendental = ToDouble(cost.transcendental);
  CountTraffic(graph, node, cost, work);
  if (cost.matmul > 0) PlaceContraction(graph, node, cost, work);
  work.form = work.contraction() ? FormOfProduct(node) : FormOfAxes(graph, node);
  return work;
}

}  // namespace tally
