#include "tally/autograd/checkpoint_tree.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "tally/tensor/backend.h"

namespace tally {
namespace {

// A hash of the elements, which are contiguous; the same within a program, not beyond it.
uint64_t HashOf(const Tensor& tensor) {
  const int64_t bytes = tensor.spec().bytes();
  std::vector<char> copy;
  const char* data = static_cast<const char*>(tensor.raw());
  if (tensor.device().kind != DeviceKind::kCpu) {
    copy.resize(bytes);
    ThrowIfError(ExistingBackend(tensor.device()).CopyOut(copy.data(), data, bytes));
    data = copy.data();
  }
  uint64_t hash = 0x9e3779b97f4a7c15u ^ static_cast<uint64_t>(bytes);
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  };
  int64_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    mix(word);
  }
  uint64_t rest = 0;
  if (i < bytes) std::memcpy(&rest, data + i, bytes - i);
  mix(rest);
  return hash;
}

}  // namespace

CheckpointTree::CheckpointTree(const Graph& graph)
    : regions_(1),
      first_node_(static_cast<NodeId>(graph.nodes.size())),
      first_value_(static_cast<ValueId>(graph.values.size())) {}

void CheckpointTree::Open(const Graph& graph, const CheckpointOptions& options) {
  Region region;
  region.parent = current_;
  region.first = region.end = static_cast<NodeId>(graph.nodes.size());
  region.options = options;
  region.last = std::numeric_limits<int32_t>::max();  // until it closes: all that follow
  current_ = static_cast<int32_t>(regions_.size());
  regions_.push_back(std::move(region));
}

bool CheckpointTree::Close(const Graph& graph) {
  Region& region = regions_[current_];
  region.end = static_cast<NodeId>(graph.nodes.size());
  region.last = static_cast<int32_t>(regions_.size()) - 1;
  current_ = region.parent;
  return current_ == 0;
}

int32_t CheckpointTree::RegionOf(NodeId node) const {
  return node < first_node_ || node >= end() ? 0 : regions_of_nodes_[node - first_node_];
}

int32_t CheckpointTree::LevelOf(ValueId value) const {
  const size_t i = static_cast<size_t>(value - first_value_);
  return value < first_value_ || i >= levels_.size() ? 0 : levels_[i];
}

int32_t CheckpointTree::Common(int32_t a, int32_t b) const {
  while (!Holds(a, b)) {
    if (Holds(b, a)) return b;
    a = regions_[a].parent;
  }
  return a;
}

void CheckpointTree::SetLevel(ValueId value, int32_t level) {
  const size_t i = static_cast<size_t>(value - first_value_);
  if (i >= levels_.size()) levels_.resize(i + 1, 0);
  levels_[i] = level;
}

void CheckpointTree::Hold(ValueId value, const Tensor& tensor) {
  held_.try_emplace(value, Held{tensor, tensor.storage().version()});
}

// Of what a compute op makes: each region around may save it.
int32_t CheckpointTree::LevelOfOutput(const Graph& graph, const Node& node) const {
  if (node.op->kind == OpKind::kUpdate) return 0;
  int32_t level = current_;
  if (node.op->kind == OpKind::kView) return level;
  for (; level != 0; level = regions_[level].parent) {
    const SavePolicy& save = regions_[level].options.save;
    if (save == nullptr) return level;
    const NodeCall call(graph, node);
    if (!save({*node.op, call.call(), [&] { return graph.ScopePath(node.scope); }})) return level;
  }
  return level;
}

std::exception_ptr CheckpointTree::OnNode(const Graph& graph, const Node& node, NodeId id,
                                          absl::Span<const Tensor* const> in,
                                          absl::Span<Tensor> out, ReadSet kept) {
  regions_of_nodes_.resize(id - first_node_ + 1, 0);
  regions_of_nodes_.back() = current_;
  // What the node makes is not saved unless the policies, which may throw, say so.
  const auto in_ids = graph.in(node), out_ids = graph.out(node);
  for (size_t i = 0; i < in.size(); ++i) {
    if (LevelOf(in_ids[i]) == 0) Hold(in_ids[i], *in[i]);
  }
  std::exception_ptr thrown;
  int32_t level = current_;
  try {
    level = LevelOfOutput(graph, node);
  } catch (...) {
    thrown = std::current_exception();
  }
  bool verify = false;
  for (int32_t r = current_; r != 0 && !verify; r = regions_[r].parent) {
    verify = regions_[r].options.verify;
  }
  for (size_t j = 0; j < out.size(); ++j) {
    if (level != 0) SetLevel(out_ids[j], level);
    if (level == 0 && j < 16 && (kept.out() >> j & 1)) Hold(out_ids[j], out[j]);
    if (verify && level != 0 && node.op->kind == OpKind::kCompute && !out[j].device().is_meta()) {
      hashes_[out_ids[j]] = HashOf(out[j]);
    }
  }
  return thrown;
}

void CheckpointTree::OnName(ValueId value, const Tensor& tensor, absl::string_view name) {
  for (int32_t r = current_; r != 0; r = regions_[r].parent) {
    const std::vector<std::string>& names = regions_[r].options.save_named;
    if (std::find(names.begin(), names.end(), name) != names.end()) met_.emplace(name);
  }
  const int32_t level = LevelOf(value);
  if (level == 0) return;
  int32_t saved = Holds(current_, level) ? current_ : level;
  const int32_t from = saved;
  for (; saved != 0; saved = regions_[saved].parent) {
    const std::vector<std::string>& names = regions_[saved].options.save_named;
    if (std::find(names.begin(), names.end(), name) == names.end()) break;
  }
  if (saved == from) return;
  SetLevel(value, saved);
  if (saved == 0) Hold(value, tensor);
}

void CheckpointTree::CheckNames(absl::Span<const std::unique_ptr<CheckpointTree>> trees) {
  const auto met = [&](const std::string& name) {
    return std::any_of(trees.begin(), trees.end(),
                       [&](const auto& tree) { return tree->met_.contains(name); });
  };
  for (const auto& tree : trees) {
    for (const Region& region : tree->regions_) {
      for (const std::string& name : region.options.save_named) {
        if (met(name)) continue;
        ThrowInvalid(absl::StrCat("checkpoint: save_named lists \"", name,
                                  "\", and no value in a scope that lists it was named so "
                                  "(NameValue)"));
      }
    }
  }
}

RecomputePlan CheckpointTree::Plan(const Graph& graph, Reads reads) const {
  RecomputePlan plan;
  plan.nodes.resize(regions_.size());
  std::vector<std::vector<ValueId>> targets(regions_.size());
  const auto use = [&](int32_t region, ValueId v) {
    if (plan.uses[{region, v}]++ == 0 && region != 0) targets[region].push_back(v);
  };
  for (NodeId n = first_node_; n < end(); ++n) {
    if (RegionOf(n) == 0) continue;
    reads(n, [&](ValueId v) { use(RegionThatRebuilds(n, v), v); });
  }
  // Inner regions first: what they read of outer ones are the outer ones' targets.
  std::vector<int32_t> wanted_by(levels_.size(), 0);
  for (int32_t r = num_regions() - 1; r > 0; --r) {
    NodeId n = kNone;
    for (ValueId v : targets[r]) {
      wanted_by[v - first_value_] = r;
      n = std::max(n, graph.values[v].producer);
    }
    std::vector<NodeId>& nodes = plan.nodes[r];
    for (; n >= regions_[r].first && n != kNone; --n) {
      const Node& node = graph.nodes[n];
      bool wanted = false;
      for (ValueId v : graph.out(node)) {
        wanted |= LevelOf(v) != 0 && wanted_by[v - first_value_] == r;
      }
      if (!wanted) continue;
      nodes.push_back(n);
      for (ValueId v : graph.in(node)) {
        const int32_t from = Common(r, LevelOf(v));
        use(from, v);
        if (from == r) wanted_by[v - first_value_] = r;
      }
    }
    std::reverse(nodes.begin(), nodes.end());
  }
  return plan;
}

void CheckpointTree::Keep(const RecomputePlan& plan) {
  // In order of value, so that the frees are recorded in the same order each time.
  std::vector<ValueId> unused;
  for (const auto& [v, held] : held_) {
    if (!plan.uses.contains({0, v})) unused.push_back(v);
  }
  std::sort(unused.begin(), unused.end());
  for (ValueId v : unused) held_.erase(v);
}

bool CheckpointTree::Matches(ValueId value, const Tensor& tensor) const {
  const auto hash = hashes_.find(value);
  return hash == hashes_.end() || hash->second == HashOf(tensor);
}

}  // namespace tally
