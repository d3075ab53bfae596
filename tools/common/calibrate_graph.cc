// The calls of a model as cases to time.
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tally/analysis/workload.h"
#include "tally/tools/common/calibrate_cases.h"

namespace tally {
namespace {

// The field as text; "" when the op has none of that name.
std::string Field(const Node& node, absl::string_view name) {
  if (node.op->attrs == nullptr) return "";
  for (const AttrField& field : node.op->attrs()) {
    if (name == field.name) return AttrText(field, node.attrs);
  }
  return "";
}

int64_t Number(const Node& node, absl::string_view name) {
  int64_t value = 0;
  return absl::SimpleAtoi(Field(node, name), &value) ? value : 0;
}

// Entry of "[4,8]" that the field `axis` picks.
int64_t OfAxis(const Node& node, const std::string& dims) {
  absl::string_view text = dims;
  absl::ConsumePrefix(&text, "[");
  absl::ConsumeSuffix(&text, "]");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  const auto rank = static_cast<int64_t>(parts.size());
  const int64_t axis = Number(node, "axis");
  const int64_t at = axis < 0 ? axis + rank : axis;
  int64_t value = 0;
  return at >= 0 && at < rank && absl::SimpleAtoi(parts[at], &value) ? value : 0;
}

// Exclusive bound of the indexes that an op takes beside its first operand; 0: not known.
int64_t IndexBound(const Graph& graph, const Node& node) {
  const std::string op = node.op->name;
  const Shape& first = graph.values[graph.in(node)[0]].spec.shape;
  if (op == "gather_rows") return first.rank() == 0 ? 0 : first[0];
  if (op == "gather") return OfAxis(node, first.ToString());
  if (op == "scatter_add_rows") return Number(node, "rows");
  if (op == "scatter_add") return OfAxis(node, Field(node, "shape"));
  if (op == "cross_entropy" || op == "cross_entropy_grad") return first[-1];
  if (op == "one_hot") return Number(node, "classes");
  if (op == "moe_route") return Number(node, "experts");
  if (op == "max_pool2d_grad") return Number(node, "size_h") * Number(node, "size_w");
  if (op == "max_pool2d_pick") return first[-1] * first[-2];
  return 0;
}

bool OperandOf(const Graph& graph, const Node& node, ValueId v, CaseOperand* operand) {
  operand->spec = graph.values[v].spec;
  const DType dtype = operand->spec.dtype;
  if (IsFloat(dtype)) return ItemSize(dtype) >= 2;
  if (dtype == DType::kBool) {
    operand->kind = CaseOperand::kMask;
    return true;
  }
  if (dtype != DType::kI64 && dtype != DType::kI32) return false;
  if (std::string(node.op->name).rfind("grouped_matmul", 0) == 0) {
    operand->kind = CaseOperand::kOffsets;
    operand->high = graph.values[graph.in(node)[0]].spec.shape[0];
    return operand->spec.numel() > 1;
  }
  operand->kind = CaseOperand::kIds;
  operand->high = IndexBound(graph, node);
  return operand->high > 0;
}

}  // namespace

std::vector<CalibrationCase> CasesOf(const std::vector<const Graph*>& graphs,
                                     const CallLimits& limits) {
  std::vector<CalibrationCase> cases;
  std::set<std::string> seen;
  for (const Graph* graph : graphs) {
    for (const Node& node : graph->nodes) {
      if (node.foreign != kNone || node.op->kind == OpKind::kView) continue;
      const Workload work = WorkloadOf(*graph, node);
      if (!seen.insert(work.call).second) continue;
      if (work.bytes > static_cast<double>(limits.bytes) || work.flops > limits.flops) continue;
      CalibrationCase c{node.op, node.attrs, {}};
      bool known = true;
      for (const ValueId v : graph->in(node)) {
        c.in.emplace_back();
        known = known && OperandOf(*graph, node, v, &c.in.back());
      }
      if (known) cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace tally
