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

// Last node of `phase` that serves each forward node.
std::vector<NodeId> LastServed(const Graph& graph, Phase phase) {
  std::vector<NodeId> last(graph.nodes.size(), kNone);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase == phase && node.serves != kNone) last[node.serves] = static_cast<NodeId>(n);
  }
  return last;
}

// Last backward or recompute node that reads each storage.
std::vector<NodeId> LastRead(const Graph& graph) {
  std::vector<NodeId> last(graph.storages.size(), kNone);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::kBackward && node.phase != Phase::kRecompute) continue;
    for (ValueId v : graph.in(node)) last[graph.values[v].storage] = static_cast<NodeId>(n);
  }
  return last;
}

// Whether a gradient rule of the node reads the value; else it is kept to run the node again.
bool GradientReads(const Graph& graph, const Node& node, ValueId value) {
  ReadSet reads;
  for (const GradRule& rule : node.op->grads) reads = reads | rule.reads;
  const auto among = [&](uint16_t bits, absl::Span<const ValueId> operands) {
    for (size_t i = 0; i < operands.size() && i < 16; ++i) {
      if (operands[i] == value && (bits >> i & 1)) return true;
    }
    return false;
  };
  return among(reads.in(), graph.in(node)) || among(reads.out(), graph.out(node));
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

class Collector {
 public:
  explicit Collector(const Graph& graph)
      : g_(graph),
        provenance_(graph),
        last_backward_(LastServed(graph, Phase::kBackward)),
        last_rerun_(LastServed(graph, Phase::kRecompute)),
        last_read_(LastRead(graph)) {}

  std::vector<Kept> Run() {
    for (size_t n = 0; n < g_.nodes.size(); ++n) {
      const NodeId id = static_cast<NodeId>(n);
      const Node& node = g_.nodes[n];
      if (node.phase == Phase::kForward) {
        for (ValueId v : g_.saved(node)) Keep(v, id, UntilServed(id, v));
      } else if (node.phase == Phase::kRecompute) {
        for (ValueId v : g_.out(node)) {
          const NodeId until = last_read_[g_.values[v].storage];
          if (until > id) Keep(v, id, until);
        }
      }
    }
    return std::move(all_);
  }
  const Provenance& provenance() const { return provenance_; }

 private:
  NodeId UntilServed(NodeId n, ValueId v) const {
    if (last_rerun_[n] == kNone) return last_backward_[n];
    const bool gradient = GradientReads(g_, g_.nodes[n], v);
    return std::max(last_rerun_[n], gradient ? last_backward_[n] : kNone);
  }

  void Keep(ValueId v, NodeId saver, NodeId until) {
    if (provenance_.parameter(v) != kNone) return;
    const StorageId storage = g_.values[v].storage;
    const auto [it, added] = index_.try_emplace(storage, all_.size());
    if (added) {
      Kept kept;
      kept.residual.storage = storage;
      kept.residual.value = v;
      kept.residual.retained = g_.storages[storage].bytes;
      kept.residual.origin = g_.storages[storage].origin;
      kept.residual.from = saver;
      all_.push_back(std::move(kept));
    }
    Kept& kept = all_[it->second];
    kept.values.push_back(v);
    kept.residual.until = std::max(kept.residual.until, until);
    std::vector<NodeId>& savers = kept.residual.savers;
    if (savers.empty() || savers.back() != saver) savers.push_back(saver);
  }

  const Graph& g_;
  const Provenance provenance_;
  const std::vector<NodeId> last_backward_, last_rerun_;  // per forward node: that serves it
  const std::vector<NodeId> last_read_;                   // per storage
  std::vector<Kept> all_;
  absl::flat_hash_map<StorageId, size_t> index_;
};

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
  Collector collector(graph);
  // The first backward node at or after each node.
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  std::vector<NodeId> next_backward(graph.nodes.size() + 1, end);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    next_backward[n] =
        graph.nodes[n].phase == Phase::kBackward ? static_cast<NodeId>(n) : next_backward[n + 1];
  }

  ResidualReport report;
  std::map<std::pair<std::string, int>, size_t> lines;
  for (Kept& kept : collector.Run()) {
    Residual& r = kept.residual;
    if (r.until == kNone) r.until = next_backward[r.savers.back()];
    r.viewed = ViewedBytes(graph, collector.provenance(), kept.values, r.retained);
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
