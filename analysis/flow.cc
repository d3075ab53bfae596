#include "tally/analysis/flow.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tally {
namespace {

std::vector<ValueId> FindLosses(const Graph& graph, const std::vector<bool>& served) {
  // Downwards: a value is live when a forward node that reads it leads to a gradient.
  std::vector<bool> live(graph.values.size(), false);
  std::vector<ValueId> ends;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::kForward || node.num_out == 0) continue;
    bool read = false;
    for (ValueId v : graph.out(node)) read |= live[v];
    if (served[n] && !read) ends.push_back(graph.out(node)[0]);
    if (read || served[n]) {
      for (ValueId v : graph.in(node)) live[v] = true;
    }
  }
  return {ends.rbegin(), ends.rend()};
}

void MarkPath(const Graph& graph, std::vector<bool>& on_path) {
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool leads = false;
    for (ValueId v : graph.out(node)) leads |= on_path[v];
    if (!leads) continue;
    for (ValueId v : graph.in(node)) on_path[v] = true;
  }
}

struct RowSource {
  NodeId node = kNone;
  ValueId value = kNone;
};

RowSource FindRowSource(const Graph& graph, ValueId loss) {
  ValueId v = loss;
  NodeId reader = kNone;
  while (graph.numel(v) <= 1) {
    const NodeId producer = graph.values[v].producer;
    if (producer == kNone || graph.nodes[producer].num_in == 0) break;
    reader = producer;
    v = graph.in(graph.nodes[producer])[0];
  }
  return {reader, v};
}

int64_t Rows(const TensorSpec& spec) {
  if (spec.rank() == 0) return 1;
  if (spec.rank() == 1) return spec.shape[0];
  return spec.shape[-1] == 0 ? 0 : spec.numel() / spec.shape[-1];
}

}  // namespace

Flow TraceFlow(const Graph& graph) {
  Flow flow;
  std::vector<bool> served(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kBackward) continue;
    flow.has_backward = true;
    if (node.serves != kNone) served[node.serves] = true;
  }
  flow.on_path.assign(graph.values.size(), false);
  if (graph.loss != kNone) {
    flow.losses.push_back(graph.loss);
    flow.on_path[graph.loss] = true;
    MarkPath(graph, flow.on_path);
  }
  for (ValueId end : FindLosses(graph, served)) {
    if (!flow.on_path[end]) flow.losses.push_back(end);
  }
  for (ValueId loss : flow.losses) flow.on_path[loss] = true;
  MarkPath(graph, flow.on_path);

  flow.asked.assign(graph.storages.size(), false);
  flow.watched.assign(graph.storages.size(), false);
  flow.needs_gradient.assign(graph.values.size(), false);
  for (const Value& value : graph.values) {
    if (value.watched) flow.watched[value.storage] = true;
  }
  for (ValueId v : graph.gradient_of) {
    flow.asked[graph.values[v].storage] = true;
    flow.needs_gradient[v] = true;
  }
  if (graph.gradient_of.empty()) {
    for (size_t v = 0; v < graph.values.size(); ++v)
      flow.needs_gradient[v] = graph.values[v].watched;
  }
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kForward) continue;
    bool needs = false;
    const auto in = graph.in(node);
    for (size_t i = 0; i < in.size(); ++i) {
      needs |= flow.needs_gradient[in[i]] && !node.op->no_gradient.Contains(static_cast<int>(i));
    }
    if (!needs) continue;
    for (ValueId v : graph.out(node)) {
      flow.needs_gradient[v] = IsFloat(graph.values[v].spec.dtype);
    }
  }
  return flow;
}

LossRows CountLossRows(const Graph& graph, const Flow& flow, NodeId fallback_node,
                       int64_t fallback_rows) {
  if (!graph.tokens.empty()) {
    Count rows = 0;
    for (ValueId v : graph.tokens) rows += Rows(graph.values[v].spec);
    std::string origin = absl::StrCat("rows of ", graph.values[graph.tokens[0]].spec.ToString(),
                                      " (%", graph.tokens[0], "), which the model calls tokens");
    if (graph.tokens.size() > 1) {
      absl::StrAppend(&origin, ", and of ", graph.tokens.size() - 1, " more");
    }
    return {static_cast<int64_t>(std::min<Count>(rows, std::numeric_limits<int64_t>::max())),
            std::move(origin)};
  }
  if (flow.losses.empty()) {
    if (fallback_node == kNone) return {0, "no loss and no weight contraction was recorded"};
    return {fallback_rows, absl::StrCat("rows of the last weight contraction (node ", fallback_node,
                                        "); no loss was recorded")};
  }
  LossRows result;
  Count rows = 0;
  const char* op = nullptr;
  int losses = 0;
  for (ValueId loss : flow.losses) {
    const RowSource source = FindRowSource(graph, loss);
    const char* name = source.node == kNone ? "the loss" : graph.nodes[source.node].op->name;
    if (op != nullptr && std::strcmp(op, name) != 0) continue;
    op = name;
    rows += Rows(graph.values[source.value].spec);
    if (++losses == 1) {
      result.origin =
          absl::StrCat("rows of ", name, "'s input ", graph.values[source.value].spec.ToString());
      if (source.node != kNone) absl::StrAppend(&result.origin, " (node ", source.node, ")");
    }
  }
  result.rows = static_cast<int64_t>(std::min<Count>(rows, std::numeric_limits<int64_t>::max()));
  if (losses > 1) absl::StrAppend(&result.origin, " and of ", losses - 1, " more losses");
  return result;
}

}  // namespace tally
