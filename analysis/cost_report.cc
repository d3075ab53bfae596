#include "tally/analysis/cost_report.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"

namespace tally {

std::optional<double> CostLine::intensity() const {
  if (bytes() == 0) return std::nullopt;
  return static_cast<double>(flops.total()) / static_cast<double>(bytes());
}

CostLine& CostLine::operator+=(const CostLine& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  nodes += other.nodes;
  return *this;
}

CostLine PhaseCosts::total() const {
  CostLine sum;
  for (const CostLine& line : phase) sum += line;
  return sum;
}

PhaseCosts& PhaseCosts::operator+=(const PhaseCosts& other) {
  for (int p = 0; p < kNumPhases; ++p) phase[p] += other.phase[p];
  return *this;
}

Count CostReport::model_flops() const {
  return cost[Phase::kForward].flops.matmul + cost[Phase::kBackward].flops.matmul;
}

Count CostReport::hardware_flops() const {
  return model_flops() + cost[Phase::kRecompute].flops.matmul;
}

CostLine CostLineOf(const Graph& graph, const Node& node) {
  CostLine line;
  line.nodes = 1;
  if (node.op->kind == OpKind::kView) return line;
  line.flops = CostOf(graph, node);
  const auto in = graph.in(node);
  absl::InlinedVector<ValueId, 8> read;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!node.op->overwrites.Contains(static_cast<int>(i))) read.push_back(in[i]);
  }
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  for (ValueId v : read) line.bytes_read += graph.values[v].spec.bytes();
  for (ValueId v : graph.out(node)) line.bytes_written += graph.values[v].spec.bytes();
  return line;
}

CostReport AnalyzeCost(const Graph& graph) {
  CostReport report;
  report.by_scope.resize(graph.scopes.empty() ? 1 : graph.scopes.size());
  absl::flat_hash_map<const OpDef*, size_t> op_index;
  std::map<DType, PhaseCosts> dtypes;
  for (const Node& node : graph.nodes) {
    const CostLine line = CostLineOf(graph, node);
    report.cost[node.phase] += line;
    const auto [it, added] = op_index.try_emplace(node.op, report.by_op.size());
    if (added) report.by_op.push_back({node.op->name, node.foreign != kNone, {}});
    report.by_op[it->second].cost[node.phase] += line;
    report.by_scope[node.scope].own[node.phase] += line;
    if (node.num_in + node.num_out > 0) {
      const ValueId first = node.num_in > 0 ? graph.in(node)[0] : graph.out(node)[0];
      dtypes[graph.values[first].spec.dtype][node.phase] += line;
    }
    report.declared_nodes += node.foreign != kNone;
  }
  for (CostReport::ScopeLine& line : report.by_scope) line.total = line.own;
  for (size_t s = graph.scopes.size(); s-- > 1;) {  // parents come before children
    report.by_scope[graph.scopes[s].parent].total += report.by_scope[s].total;
  }
  for (const auto& [dtype, cost] : dtypes) report.by_dtype.push_back({dtype, cost});
  return report;
}

}  // namespace tally
