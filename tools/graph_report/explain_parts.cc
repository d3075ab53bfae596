#include "tally/tools/graph_report/explain_parts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tally/io/report_json.h"

namespace tally {
namespace {

std::string SpecsOf(const Graph& graph, const Node& node) {
  return absl::StrJoin(graph.in(node), " ", [&](std::string* out, ValueId v) {
    absl::StrAppend(out, graph.values[v].spec.ToString(), AxesText(graph, v));
  });
}

std::string In(const std::string& scope) {
  return scope.empty() ? "" : absl::StrCat(", in ", scope);
}

}  // namespace

ExplanationParts::ExplanationParts(const Report& report)
    : r_(report), g_(report.graph), p_(report.proof) {
  for (size_t v = g_.values.size(); v-- > 0;)
    first_value_[g_.values[v].storage] = static_cast<ValueId>(v);
  for (const WeightContraction& c : p_.contractions) weight_of_[c.node] = &c;
}

void ExplanationParts::Say(const std::string& formula, const std::string& unit, bool adds_up) {
  e_.formula = formula;
  e_.unit = unit;
  e_.adds_up = adds_up;
}

std::string ExplanationParts::NodeWords(NodeId n, bool rows) const {
  const Node& node = g_.nodes[n];
  const auto it = weight_of_.find(node.phase == Phase::kBackward ? node.serves : n);
  std::string sizes = SpecsOf(g_, node);
  if (rows && it != weight_of_.end() && CostOf(g_, node).matmul == it->second->forward) {
    const WeightContraction& c = *it->second;
    sizes = absl::StrCat(c.groups == 1 ? "2·r·|W| = 2·" : "2·r·|W|/E = 2·", ToGrouped(c.rows), "·",
                         ToGrouped(c.elements));
    if (c.groups != 1) absl::StrAppend(&sizes, "/", c.groups);
  }
  return absl::StrCat(node.op->name, ", ", sizes, In(g_.ScopePath(node.scope)));
}

std::string ExplanationParts::StorageWords(StorageId s) const {
  const auto it = first_value_.find(s);
  const ValueId value = it == first_value_.end() ? kNone : it->second;
  std::string text = absl::StrCat(Name(g_.storages[s].origin), " ", ReportName(g_, s, value));
  if (value == kNone) return text;
  absl::StrAppend(&text, ", ", g_.values[value].spec.ToString(), AxesText(g_, value));
  const NodeId producer = g_.values[value].producer;
  if (producer == kNone) return text;
  return absl::StrCat(text, ", of ", g_.nodes[producer].op->name,
                      In(g_.ScopePath(g_.nodes[producer].scope)));
}

void ExplanationParts::AddNode(NodeId n, Count amount, bool rows) {
  if (amount != 0) e_.parts.push_back({ExplainedPart::kNode, n, NodeWords(n, rows), amount});
}

void ExplanationParts::AddMatmul(NodeId n) { AddNode(n, CostOf(g_, g_.nodes[n]).matmul); }

void ExplanationParts::AddStorage(StorageId s, Count amount) {
  if (amount != 0) e_.parts.push_back({ExplainedPart::kStorage, s, StorageWords(s), amount});
}

void ExplanationParts::AddStorages(const std::vector<StorageId>& list) {
  for (StorageId s : list) AddStorage(s, g_.storages[s].bytes);
}

}  // namespace tally
