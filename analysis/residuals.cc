#include "tally/analysis/residuals.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "tally/analysis/provenance.h"

namespace tally {
namespace {

struct Kept {
  Residual residual;
  std::vector<ValueId> values;
};

// Last backward node that serves each forward node.
std::vector<NodeId> LastServed(const Graph& graph) {
  std::vector<NodeId> last(graph.nodes.size(), kNone);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase == Phase::kBackward && node.serves != kNone)
      last[node.serves] = static_cast<NodeId>(n);
  }
  return last;
}

// Walks views back to the value whose elements were computed.
ValueId Computed(const Graph& graph, ValueId v) {
  while (true) {
    const NodeId producer = graph.values[v].producer;
    if (producer == kNone || graph.nodes[producer].op->kind != OpKind::kView) return v;
    v = graph.in(graph.nodes[producer])[0];
  }
}

// Bytes shown by `values`, all in one storage: distinct regions, those inside another kept one
// once.
int64_t ViewedBytes(const Graph& graph, const Provenance& provenance,
                    const std::vector<ValueId>& values, int64_t storage_bytes) {
  absl::flat_hash_set<ValueId> regions;
  for (ValueId v : values) regions.insert(provenance.region(v));
  int64_t bytes = 0;
  for (ValueId region : regions) {
    bool inside = false;
    for (ValueId outer = provenance.outer(region); outer != kNone && !inside;
         outer = provenance.outer(outer)) {
      inside = regions.contains(outer);
    }
    if (!inside) bytes += provenance.elements(region) * ItemSize(graph.values[region].spec.dtype);
  }
  return std::min(bytes, storage_bytes);
}

std::vector<Kept> Collect(const Graph& graph, const Provenance& provenance) {
  std::vector<Kept> all;
  absl::flat_hash_map<StorageId, size_t> index;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::kForward) continue;
    for (ValueId v : graph.saved(node)) {
      if (provenance.parameter(v) != kNone) continue;
      const StorageId storage = graph.values[v].storage;
      const auto [it, added] = index.try_emplace(storage, all.size());
      if (added) {
        Kept kept;
        kept.residual.storage = storage;
        kept.residual.value = v;
        kept.residual.retained = graph.storages[storage].bytes;
        kept.residual.origin = graph.storages[storage].origin;
        kept.residual.from = static_cast<NodeId>(n);
        all.push_back(std::move(kept));
      }
      Kept& kept = all[it->second];
      kept.values.push_back(v);
      std::vector<NodeId>& savers = kept.residual.savers;
      if (savers.empty() || savers.back() != static_cast<NodeId>(n))
        savers.push_back(static_cast<NodeId>(n));
    }
  }
  return all;
}

// The most kept at once. Ends at a node come after what starts there: a backward node still reads.
void Sweep(const std::vector<Residual>& residuals, ResidualReport& report) {
  std::vector<std::pair<NodeId, size_t>> ends;
  for (size_t i = 0; i < residuals.size(); ++i) ends.push_back({residuals[i].until, i});
  std::sort(ends.begin(), ends.end());
  int64_t retained = 0, viewed = 0, inputs = 0;
  size_t end = 0;
  for (const Residual& r : residuals) {
    for (; end < ends.size() && ends[end].first < r.from; ++end) {
      const Residual& gone = residuals[ends[end].second];
      retained -= gone.retained;
      viewed -= gone.viewed;
      if (gone.producer == kNone) inputs -= gone.retained;
    }
    retained += r.retained;
    viewed += r.viewed;
    if (r.producer == kNone) inputs += r.retained;
    if (retained > report.retained) {
      report.retained = retained;
      report.viewed = viewed;
      report.retained_inputs = inputs;
      report.most_at = r.from;
    }
  }
}

}  // namespace

ResidualReport ListResiduals(const Graph& graph) {
  const Provenance provenance(graph);
  const std::vector<NodeId> last_served = LastServed(graph);
  // The first backward node at or after each node.
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  std::vector<NodeId> next_backward(graph.nodes.size() + 1, end);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    next_backward[n] =
        graph.nodes[n].phase == Phase::kBackward ? static_cast<NodeId>(n) : next_backward[n + 1];
  }

  ResidualReport report;
  std::map<std::pair<std::string, int>, size_t> lines;
  for (Kept& kept : Collect(graph, provenance)) {
    Residual& r = kept.residual;
    for (NodeId saver : r.savers) r.until = std::max(r.until, last_served[saver]);
    if (r.until == kNone) r.until = next_backward[r.savers.back()];
    r.viewed = ViewedBytes(graph, provenance, kept.values, r.retained);
    const ValueId computed = Computed(graph, r.value);
    r.producer = graph.values[computed].producer;
    std::string op;
    if (r.producer != kNone) {
      const Node& producer = graph.nodes[r.producer];
      const auto out = graph.out(producer);
      r.output = static_cast<int>(std::find(out.begin(), out.end(), computed) - out.begin());
      op = producer.op->name;
    }
    const auto [it, added] = lines.try_emplace({op, r.output}, report.by_op.size());
    if (added) report.by_op.push_back({op, r.output});
    ResidualReport::OpLine& line = report.by_op[it->second];
    line.retained += r.retained;
    line.viewed += r.viewed;
    ++line.storages;
    report.residuals.push_back(std::move(r));
  }
  Sweep(report.residuals, report);
  return report;
}

int64_t ResidualReport::RetainedBy(const std::string& op, int output) const {
  for (const OpLine& line : by_op) {
    if (line.op == op && line.output == output) return line.retained;
  }
  return 0;
}

}  // namespace tally
