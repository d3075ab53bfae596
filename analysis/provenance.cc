#include "tally/analysis/provenance.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace tally {

bool IsCopy(const OpDef& op) {
  return std::strcmp(op.name, "cast") == 0 || std::strcmp(op.name, "contiguous") == 0;
}

Provenance::Provenance(const Graph& graph) {
  const size_t n = graph.values.size();
  root_.resize(n);
  std::iota(root_.begin(), root_.end(), 0);
  region_ = root_;
  outer_.assign(n, kNone);
  parameter_.assign(n, kNone);
  elements_.resize(n);
  for (size_t v = 0; v < n; ++v) {
    const Value& value = graph.values[v];
    elements_[v] = value.spec.numel();
    if (value.storage != kNone && graph.storages[value.storage].origin == Origin::kParameter) {
      parameter_[v] = value.storage;
    }
  }
  for (const Node& node : graph.nodes) {
    if (node.num_out == 0) continue;
    if (node.phase == Phase::kRecompute && node.serves != kNone) {
      const Node& original = graph.nodes[node.serves];
      for (int i = 0; i < std::min(node.num_out, original.num_out); ++i) {
        const ValueId out = graph.out(node)[i], before = graph.out(original)[i];
        root_[out] = root_[before];
        region_[out] = region_[before];
        parameter_[out] = parameter_[before];
        elements_[out] = elements_[before];
      }
    } else if (node.num_in > 0 && (node.op->kind == OpKind::kView || IsCopy(*node.op))) {
      for (int j = 0; j < node.num_out; ++j) Follow(graph, node, j);
    }
  }
}

void Provenance::Follow(const Graph& graph, const Node& node, int output) {
  const ValueId in = graph.in(node)[0], out = graph.out(node)[output];
  root_[out] = root_[in];
  parameter_[out] = parameter_[in];
  elements_[out] = std::min(elements_[in], graph.numel(out));
  if (graph.numel(out) >= graph.numel(in)) {
    region_[out] = region_[in];
    return;
  }
  // A part of `in`. The same cut made before is the same region.
  if (node.foreign == kNone) {
    const std::string cut = absl::StrCat(in, " ", output, " ", node.op->name, " ",
                                         AttrsText(node.op->attrs, node.attrs));
    const auto [it, added] = cuts_.try_emplace(cut, out);
    region_[out] = it->second;
    if (!added) return;
  }
  outer_[out] = region_[in];
}

std::string ValueName(const Graph& graph, ValueId value) {
  const NameId name = graph.values[value].name;
  if (name != kNone && !graph.name(name).empty()) return graph.name(name);
  return absl::StrCat("%", value);
}

std::string StorageName(const Graph& graph, StorageId storage) {
  const StorageRecord& record = graph.storages[storage];
  if (record.name != kNone && !graph.name(record.name).empty()) return graph.name(record.name);
  return absl::StrCat(Name(record.origin), " ", storage);
}

}  // namespace tally
